"""Archives of Python files, derived: compiled beforehand, and without what is never used.

Pyodide's standard library and every wheel come as source text, and compiling it at each start took the page longer than
anything else. So the build does it once, by the same Pyodide under Node: a `.py` becomes a `.pyc` that is taken as it is,
without docstrings and assertions, as `python -OO` does.

A derived archive lies in the cache under a hash of all that goes into it; the same input gives the same bytes. What is
derived for the page, `page_python.py` says.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tooling.console import ToolingError, say
from tooling.files import write_whole
from tooling.hashes import sha256_of, sha256_of_parts
from tooling.npm import find_node
from tooling.paths import cache_dir

_COMPILER = Path(__file__).with_name("compile_in_pyodide.mjs")
_OLDEST = (1980, 1, 1, 0, 0, 0)  # the oldest time a zip file can hold
_KEPT = 24  # archives of earlier sources, for going back and forth while developing


@dataclass(frozen=True)
class Archive:
    """An archive to be derived.

    Attributes:
        source: the archive as it came: a wheel, or the standard library.
        file: the derived one's name.
        folder: where the page's Python has its files, for tracebacks.
        left_out: patterns of members that are never used (`*` matches `/` too).
        imports: modules; only they and what they import is compiled, the rest stays text. None: all of it is compiled.
    """

    source: Path
    file: str
    folder: str
    left_out: tuple[str, ...] = ()
    imports: tuple[str, ...] | None = None

    def is_kept(self, member: str) -> bool:
        """Whether the derived archive has this member of the source, compiled or as it is."""
        return not any(fnmatchcase(member, pattern) for pattern in self.left_out)


def compile_archives(archives: Iterable[Archive], pyodide: Path) -> dict[str, Path]:
    """The derived archives by their file names, from the cache or made.

    Args:
        archives: what is wanted.
        pyodide: the folder of the npm package whose Python compiles.

    Raises:
        ToolingError: Node is missing, or a file cannot be compiled.
    """
    interpreter = _identity(pyodide)
    places = {archive: _place(archive, interpreter) for archive in archives}
    missing = [archive for archive, path in places.items() if not path.is_file()]
    if missing:
        say(f"Compiling the Python of {', '.join(archive.file for archive in missing)}…")
        _forget_oldest(cache_dir() / "compiled", coming=len(missing))
        with tempfile.TemporaryDirectory(prefix="tinypylm-compiled-") as scratch:
            _compile(missing, pyodide, Path(scratch))
            for number, archive in enumerate(missing):
                with write_whole(places[archive]) as file, zipfile.ZipFile(file, "w") as target:
                    _pack(archive, Path(scratch, str(number)), target)
    return {archive.file: path for archive, path in places.items()}


def _identity(pyodide: Path) -> str:
    """A hash of what decides how a file is compiled and packed."""
    own = [(path.name, path.read_bytes()) for path in (_COMPILER, Path(__file__))]
    files = (pyodide / name for name in ("pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip"))
    return sha256_of_parts([*own, *((path.name, sha256_of(path).encode()) for path in files)])


def _place(archive: Archive, interpreter: str) -> Path:
    recipe = json.dumps([archive.folder, archive.left_out, archive.imports])
    parts = {"interpreter": interpreter, "source": sha256_of(archive.source), "recipe": recipe}
    key = sha256_of_parts((name, text.encode()) for name, text in parts.items())
    return cache_dir() / "compiled" / key / archive.file


def _forget_oldest(folder: Path, *, coming: int) -> None:
    if folder.is_dir():
        by_age = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
        for path in by_age[: max(0, len(by_age) - _KEPT + coming)]:
            shutil.rmtree(path, ignore_errors=True)


def _compile(archives: Sequence[Archive], pyodide: Path, scratch: Path) -> None:
    """Unpack each archive's Python files into the folder of its number, and compile them there."""
    node = find_node()
    for number, archive in enumerate(archives):
        with zipfile.ZipFile(archive.source) as source:
            names = [name for name in source.namelist() if name.endswith(".py") and archive.is_kept(name)]
            source.extractall(scratch / str(number), names)
    jobs = [{"folder": archive.folder, "imports": archive.imports} for archive in archives]
    (scratch / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    result = subprocess.run(
        [node, str(_COMPILER), str(pyodide), str(scratch)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        tail = "\n  ".join((result.stdout + result.stderr).strip().splitlines()[-15:])
        raise ToolingError(f"compiling with Pyodide failed:\n  {tail}\nCorrect the file that is named there")


def _pack(archive: Archive, compiled: Path, target: zipfile.ZipFile) -> None:
    """Write the derived archive: the source's members in their order; last, where it is a wheel, a RECORD of them."""
    record, lines = "", []
    with zipfile.ZipFile(archive.source) as source:
        for name in filter(archive.is_kept, source.namelist()):
            if name.endswith(".dist-info/RECORD"):
                record = name
                continue
            made = compiled / f"{name}c"
            kept, data = (f"{name}c", made.read_bytes()) if made.is_file() else (name, source.read(name))
            _write(target, kept, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{kept},sha256={digest},{len(data)}\n")
    if record:
        _write(target, record, "".join([*lines, f"{record},,\n"]).encode())


def _write(target: zipfile.ZipFile, name: str, data: bytes) -> None:
    member = zipfile.ZipInfo(name, _OLDEST)
    member.external_attr = 0o644 << 16
    target.writestr(member, data, zipfile.ZIP_DEFLATED, 9)
