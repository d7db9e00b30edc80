"""From any Python to the project's own: makes .venv with what a command needs, then starts the command again in it.

Only the standard library is used here, since nothing is installed yet; and nothing newer than Python 3.8 before the
version is checked, so that an old Python is told what to do instead of failing on syntax.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Iterable

from tooling.console import ToolingError, say
from tooling.locking import exclusive
from tooling.paths import ROOT, VENV, cache_dir

OLDEST_PYTHON = (3, 11)
STAMP = VENV / "tinypylm.json"  # written last: a .venv without it is finished first
CONSTRAINTS = ROOT / "constraints.txt"

_TOLD_LINES = re.compile(
    r"\s*(?:Collecting (?P<name>[\w.\[\],-]+)|(?P<step>Installing collected packages|Building wheel))"
)


def enter_venv(extras: Iterable[str]) -> None:
    """Return when running inside .venv with `extras` of pyproject.toml installed; otherwise make it and start over in it."""
    check_python(sys.version_info[:2])
    with exclusive(cache_dir() / "lock"):
        changed = _prepare(frozenset(extras))
    if changed or not _inside():
        os.execv(venv_python(), [str(venv_python()), *sys.orig_argv[1:]])  # noqa: S606 - no shell


def check_python(version: tuple[int, ...]) -> None:
    """Raise ToolingError for a Python that is too old."""
    if version < OLDEST_PYTHON:
        wanted, found = (".".join(map(str, numbers)) for numbers in (OLDEST_PYTHON, version))
        raise ToolingError(
            f"Python {found} ({sys.executable}) is too old: {wanted} or newer is needed. "
            f"Install it and start this command with it, for example `python{wanted} {sys.argv[0]}`"
        )


def venv_python() -> pathlib.Path:
    """The interpreter of .venv."""
    return VENV / "bin" / "python"


def _inside() -> bool:
    return pathlib.Path(sys.prefix).resolve() == VENV.resolve()


def _prepare(extras: frozenset[str]) -> bool:
    """Bring .venv up to date with the pins and `extras`; whether something had to be done."""
    key, (stamped_key, installed) = _pins_key(), _read_stamp()
    if stamped_key == key and extras <= installed:
        return False
    wanted = sorted(extras | installed)
    if not _is_usable():
        _create()
    STAMP.unlink(missing_ok=True)
    _install(wanted)
    STAMP.write_text(json.dumps({"key": key, "extras": wanted}))
    return True


def _pins_key() -> str:
    """What .venv depends on: the project's own table, its constraints, and the folder it points to."""
    import hashlib  # noqa: PLC0415 - both after the version check: tomllib is new in 3.11
    import tomllib  # noqa: PLC0415

    tables = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    parts = [tables["build-system"], tables["project"], CONSTRAINTS.read_text(encoding="utf-8"), str(ROOT)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _read_stamp() -> tuple[str, frozenset[str]]:
    """The pins that .venv was made from, and the extras that are in it."""
    try:
        stamp = json.loads(STAMP.read_text())
        return (stamp["key"], frozenset(stamp["extras"])) if venv_python().exists() else ("", frozenset())
    except (OSError, ValueError, KeyError, TypeError):
        return "", frozenset()


def _is_usable() -> bool:
    """Whether .venv has a Python that is new enough, and pip."""
    check = "import sys, pip; raise SystemExit(sys.version_info < " + repr(OLDEST_PYTHON) + ")"
    try:
        return subprocess.run([venv_python(), "-c", check], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _create() -> None:
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        name = "python{}.{}-venv".format(*sys.version_info[:2])
        raise ToolingError(
            f"Python at {sys.executable} lacks the standard modules venv and ensurepip, so .venv cannot be made. "
            f"On Debian or Ubuntu: apt-get install {name}"
        )
    say("Making .venv…")
    _run([sys.executable, "-m", "venv", "--clear", str(VENV)], "making .venv")


def _install(extras: list[str]) -> None:
    begun = time.monotonic()
    say(f"Installing into .venv: pyruntime with [{', '.join(extras)}], versions as pinned…")
    pip = [str(venv_python()), "-m", "pip", "--disable-pip-version-check", "install", "--progress-bar", "off"]
    _run(
        [*pip, "--constraint", str(CONSTRAINTS), "--editable", f".[{','.join(extras)}]"],
        "installing the Python packages",
    )
    say(f"  .venv is ready ({time.monotonic() - begun:.0f} s)")


def _run(command: list[str], what: str) -> None:
    """Run a command, showing its steps in short; raises ToolingError with the end of its output when it fails."""
    lines = []
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None  # noqa: S101 - asked for above; tells the type checker
        for line in process.stdout:
            lines.append(line.rstrip())
            told = _TOLD_LINES.match(line)
            if told:
                say(f"  {told['name'] or told['step']}")
    if process.returncode != 0:
        tail = "\n  ".join(lines[-15:])
        raise ToolingError(f"{what} failed:\n  {tail}\nCheck the network and start again: what was done is kept")
