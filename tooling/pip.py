"""Downloads wheels with pip, by exact version and SHA-256, showing how far the download is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tooling.console import Progress, ToolingError, human_size
from tooling.pins import WHEELS, Wheel

# The platform and the Python of the page's Pyodide. Wheels for every platform match too.
_TARGET = ["--platform", "pyemscripten_2026_0_wasm32", "--python-version", "3.14"]
_HASHES = re.compile(r"Expected sha256 (?P<expected>\w+).*?Got\s+(?P<found>\w+)", re.DOTALL)


def download(wheel: Wheel, folder: Path) -> Path:
    """The downloaded wheel, inside `folder`; raises ToolingError that names it, with the hashes where they differ."""
    begun = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    label = f"{wheel.name} {wheel.version}"
    with tempfile.TemporaryDirectory(dir=folder, prefix="pip-") as scratch, Progress(label, wheel.size) as progress:
        requirements = Path(scratch, "requirements.txt")
        requirements.write_text(wheel.requirement + "\n")
        log = Path(scratch, "log.txt")
        with log.open("w") as output:
            process = subprocess.Popen(
                _command(requirements, folder),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": scratch},  # pip downloads there, so its size tells how far it is
            )
            try:
                while _is_running(process):
                    progress.update(_largest_file(Path(scratch)))
            finally:
                process.kill()
                process.wait()
        if process.returncode != 0:
            raise ToolingError(_failure(wheel, log.read_text(errors="replace")))
        (path,) = folder.glob("*.whl")
        progress.finish(f"{human_size(path.stat().st_size)}, SHA-256 as pinned ({time.monotonic() - begun:.0f} s)")
    return path


def _command(requirements: Path, folder: Path) -> list[str]:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "download"]
    # --ignore-requires-python: open-webui declares an upper bound; only its data files are taken.
    exact = ["--require-hashes", "--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--progress-bar=off"]
    return [*pip, *exact, *_TARGET, "--requirement", str(requirements), "--dest", str(folder)]


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        return True
    return False


def _largest_file(folder: Path) -> int:
    sizes = [0]
    for path in folder.rglob("*"):
        try:
            sizes.append(path.stat().st_size)
        except OSError:  # pip removed it meanwhile
            continue
    return max(sizes)


def _failure(wheel: Wheel, log: str) -> str:
    hashes = _HASHES.search(log)
    if hashes:
        return (
            f"{wheel.name} {wheel.version}: the download has SHA-256 {hashes['found']}, and {WHEELS.name} expects "
            f"{hashes['expected']}. It was not kept. Start again; if it stays so, the source was changed: do not use it"
        )
    tail = "\n  ".join(log.rstrip().splitlines()[-8:])
    return f"{wheel.name} {wheel.version}: pip could not download it:\n  {tail}\nCheck the network and disk, then start again"
