"""npm packages: installed from a committed lock into the cache, then checked file by file.

There are two locks: the page's, and the suite's (`tests/`), of which only the pinned files are kept. The packages lie in `npm/<hash of the lock>/node_modules`, so a changed lock is a new folder and an unchanged one is no work.
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
_ADVICE = (
    f"Install Node {OLDEST_NODE} or newer, with npm (on Debian or Ubuntu: apt-get install nodejs npm), and start again"
)


def _inputs(project: Path) -> dict[str, Path]:
    return {
        "package.json": project / "package.json",
        "package-lock.json": project / "package-lock.json",
        ".npmrc": ROOT / ".npmrc",
    }


def node_modules(project: Path = ROOT) -> Path:
    """Where the packages of a project's committed lock lie, or would lie."""
    key = sha256_of_parts((name, path.read_bytes()) for name, path in _inputs(project).items())
    return cache_dir() / "npm" / key / "node_modules"


def obtain(packages: Iterable[NpmPackage], project: Path = ROOT, *, only_pinned: bool = False) -> dict[NpmFile, Path]:
    """The path of every pinned file, installing the packages when they are missing or damaged.

    Args:
        packages: what is pinned.
        project: the folder with package.json and its lock.
        only_pinned: keep the pinned files and nothing else of the packages.

    Raises:
        ToolingError: Node is missing or too old, npm failed, or a file does not have the pinned hash (it is named).
    """
    pinned = tuple(packages)
    modules = node_modules(project)
    if modules.is_dir():
        problem = _find_problem(modules, pinned)
        if problem is None:
            return _paths(modules, pinned)
        say(f"{problem}: the cached packages are damaged and are fetched again")
    _install(modules.parent, project, pinned if only_pinned else None)
    problem = _find_problem(modules, pinned)
    if problem is not None:
        shutil.rmtree(modules.parent)
        pins = ARTEFACTS.name if project == ROOT else "what is pinned"
        raise ToolingError(f"{problem}. {pins} and package-lock.json must change together")
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


def _install(folder: Path, project: Path, only: tuple[NpmPackage, ...] | None) -> None:
    npm = _npm()
    place = "" if project == ROOT else f"{project.name}/"
    say(f"Installing the npm packages of {place}package-lock.json…")
    begun = time.monotonic()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="installing-") as scratch:
        new = Path(scratch, "new")
        new.mkdir()
        for name, path in _inputs(project).items():
            shutil.copyfile(path, new / name)
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
        if only is not None:
            new = _keep(only, new, Path(scratch, "kept"))
        replace_folder(new, folder)
    say(f"  npm packages are ready ({time.monotonic() - begun:.0f} s)")


def _keep(packages: tuple[NpmPackage, ...], installed: Path, target: Path) -> Path:
    """Move the pinned files, and what says the packages' versions, to a folder of their own."""
    for package in packages:
        for name in ("package.json", *(file.source for file in package.files)):
            place = Path("node_modules", package.package, name)
            if (installed / place).is_file():
                (target / place).parent.mkdir(parents=True, exist_ok=True)
                (installed / place).replace(target / place)
    return target


def find_node() -> str:
    """The path of a Node that is new enough; raises ToolingError."""
    node = shutil.which("node")
    if node is None:
        raise ToolingError(f"node was not found on PATH. {_ADVICE}")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    match = re.match(r"v(\d+)\.", version)
    if match is None or int(match[1]) < OLDEST_NODE:
        raise ToolingError(f"Node at {node} is version {version or 'unknown'}, which is too old. {_ADVICE}")
    return node


def _npm() -> str:
    """The npm on PATH, beside a Node that is new enough."""
    find_node()
    npm = shutil.which("npm")
    if npm is None:
        raise ToolingError(f"npm was not found on PATH. {_ADVICE}")
    return npm
