"""npm packages of the page: installed from the committed lock into the cache, then checked file by file.

They lie in `npm/<hash of the lock>/node_modules`, so a changed lock is a new folder and an unchanged one is no work.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tooling.console import ToolingError, say
from tooling.files import replace_folder
from tooling.hashes import sha256_of, sha256_of_parts
from tooling.paths import ROOT, cache_dir
from tooling.pins import ARTEFACTS, NpmFile, NpmPackage

OLDEST_NODE = 20
_INPUTS = ("package.json", "package-lock.json", ".npmrc")


def node_modules() -> Path:
    """Where the packages of the committed lock lie, or would lie."""
    key = sha256_of_parts((name, (ROOT / name).read_bytes()) for name in _INPUTS)
    return cache_dir() / "npm" / key / "node_modules"


def obtain(packages: Iterable[NpmPackage]) -> dict[NpmFile, Path]:
    """The path of every pinned file, installing the packages when they are missing or damaged.

    Raises:
        ToolingError: Node is missing or too old, npm failed, or a file does not have the pinned hash (it is named).
    """
    pinned = tuple(packages)
    modules = node_modules()
    if modules.is_dir():
        problem = _find_problem(modules, pinned)
        if problem is None:
            return _paths(modules, pinned)
        say(f"{problem}: the cached packages are damaged and are fetched again")
    _install(modules.parent)
    problem = _find_problem(modules, pinned)
    if problem is not None:
        shutil.rmtree(modules.parent)
        raise ToolingError(f"{problem}. {ARTEFACTS.name} and package-lock.json must change together")
    return _paths(modules, pinned)


def _paths(modules: Path, packages: tuple[NpmPackage, ...]) -> dict[NpmFile, Path]:
    return {file: modules / package.package / file.source for package in packages for file in package.files}


def _find_problem(modules: Path, packages: tuple[NpmPackage, ...]) -> str | None:
    """What is wrong with the first package or file that is not as pinned."""
    for package in packages:
        try:
            version = json.loads((modules / package.package / "package.json").read_text(encoding="utf-8"))["version"]
        except (OSError, ValueError, KeyError):
            return f"{package.package}: its package.json is missing or damaged"
        if version != package.version:
            return f"{package.package}: version is {version}, expected {package.version}"
        for file in package.files:
            path = modules / package.package / file.source
            found = sha256_of(path) if path.is_file() else "missing"
            if found != file.sha256:
                return f"{package.package}/{file.source}: SHA-256 is {found}, expected {file.sha256}"
    return None


def _install(folder: Path) -> None:
    npm = _npm()
    say("Installing the page's npm packages from package-lock.json…")
    begun = time.monotonic()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="installing-") as scratch:
        new = Path(scratch, "new")
        new.mkdir()
        for name in _INPUTS:
            shutil.copyfile(ROOT / name, new / name)
        result = subprocess.run(
            # Errors only: a package's command-line tool, never run here, may warn about the version of Node.
            [npm, "ci", "--ignore-scripts", "--no-progress", "--loglevel=error"],
            cwd=new,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            tail = "\n  ".join((result.stdout + result.stderr).strip().splitlines()[-12:])
            raise ToolingError(f"npm ci failed:\n  {tail}\nCheck the network and start again; nothing was kept")
        replace_folder(new, folder)
    say(f"  npm packages are ready ({time.monotonic() - begun:.0f} s)")


def _npm() -> str:
    """The npm on PATH, beside a Node that is new enough."""
    advice = f"Install Node {OLDEST_NODE} or newer, with npm (on Debian or Ubuntu: apt-get install nodejs npm), and start again"
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise ToolingError(f"{'node' if node is None else 'npm'} was not found on PATH. {advice}")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    match = re.match(r"v(\d+)\.", version)
    if match is None or int(match[1]) < OLDEST_NODE:
        raise ToolingError(f"Node at {node} is version {version or 'unknown'}, which is too old. {advice}")
    return npm
