"""The wheel of `pyruntime` for the page, built from pyproject.toml: the same bytes for the same sources.

Built in a copy of the sources with fixed times and permissions, by the pinned setuptools of .venv, without network.
The result is cached by the hash of what goes in.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from tooling.console import ToolingError, say
from tooling.files import write_whole
from tooling.hashes import sha256_of_parts
from tooling.paths import ROOT, cache_dir

_SUFFIXES = (".py", ".typed", ".json", ".bin", ".wasm")  # as package-data in pyproject.toml has it
_EPOCH = "315532800"  # 1980-01-01, the oldest time a zip file can hold
_KEPT = 8  # wheels of earlier sources, for going back and forth while developing


def sources_key(root: Path = ROOT) -> str:
    """A hash of everything the wheel of the sources under `root` depends on."""
    return _key(_read_sources(root))


def build_wheel(root: Path = ROOT) -> Path:
    """The wheel of the sources under `root`, from the cache or built."""
    sources = _read_sources(root)  # once, so that the key is of what is built even while someone is editing
    folder = cache_dir() / "wheels" / _key(sources)
    ready = sorted(folder.glob("*.whl"))
    if ready:
        return ready[0]
    say("Building the wheel of pyruntime…")
    with tempfile.TemporaryDirectory(prefix="tinypylm-wheel-") as scratch:
        built = _build(sources, Path(scratch))
        _forget_oldest(folder.parent)
        with write_whole(folder / built.name) as file:
            file.write(built.read_bytes())
    return folder / built.name


def _read_sources(root: Path) -> dict[str, bytes]:
    """Relative path → bytes of the files the wheel is built from."""
    project = _tables((root / "pyproject.toml").read_bytes())["project"]
    told = [name for name in ("pyproject.toml", "LICENSE", project.get("readme")) if name]
    package = sorted(path for path in (root / "pyruntime").rglob("*") if path.suffix in _SUFFIXES and path.is_file())
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in (*(root / name for name in told), *package)
    }


def _key(sources: dict[str, bytes]) -> str:
    tables = _tables(sources["pyproject.toml"])
    # Of pyproject.toml only the tables the wheel is made from; the pinned setuptools is among them.
    relevant = json.dumps([tables["build-system"], tables["project"], tables["tool"]["setuptools"]], sort_keys=True)
    return sha256_of_parts([*{**sources, "pyproject.toml": relevant.encode()}.items()])


def _tables(pyproject: bytes) -> dict[str, Any]:
    return tomllib.loads(pyproject.decode())


def _build(sources: dict[str, bytes], scratch: Path) -> Path:
    source = scratch / "source"
    for name, data in sources.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o644)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", "--no-index"]
    result = subprocess.run(
        [*pip, "--no-build-isolation", "--no-cache-dir", "--wheel-dir", str(scratch), str(source)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": _EPOCH},
        check=False,
    )
    if result.returncode != 0:
        tail = "\n  ".join((result.stdout + result.stderr).strip().splitlines()[-15:])
        raise ToolingError(f"building the wheel of pyruntime failed:\n  {tail}\nCorrect pyproject.toml or pyruntime/")
    (wheel,) = scratch.glob("*.whl")
    return wheel


def _forget_oldest(folder: Path) -> None:
    if folder.is_dir():
        by_age = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
        for path in by_age[: max(0, len(by_age) - _KEPT + 1)]:
            shutil.rmtree(path, ignore_errors=True)
