"""The page's own `pyodide-lock.json`: of Pyodide's official one only what the page uses, and our wheels added.

Pyodide refuses a wheel whose SHA-256 differs from this file's, so the hashes hold in the browser too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tooling.console import ToolingError
from tooling.hashes import sha256_of
from tooling.pins import Artefact


def make_lock(
    official: dict[str, Any], packages: Iterable[Artefact], pyruntime: Path, derived: Mapping[str, Path]
) -> bytes:
    """The lock as JSON.

    Args:
        official: Pyodide's own lock, of the same version.
        packages: pinned wheels; those Pyodide knows must have the hash it names.
        pyruntime: the wheel of pyruntime.
        derived: wheels that the site has in place of pinned ones, by their file names.

    Raises:
        ToolingError: a pinned wheel differs from the one Pyodide's lock names.
    """
    entries = {}
    for artefact in packages:
        entry = official["packages"].get(artefact.name)
        if entry is None:
            entry = _entry(artefact.name, artefact.version, artefact.file, artefact.sha256, depends=())
        elif (entry["file_name"], entry["sha256"]) != (artefact.file, artefact.sha256):
            raise ToolingError(
                f"{artefact.file}: pinned with SHA-256 {artefact.sha256}, but Pyodide's lock names {entry['file_name']} "
                f"with {entry['sha256']}; pin that one"
            )
        own = derived.get(artefact.file)
        entries[artefact.name] = entry if own is None else {**entry, "sha256": sha256_of(own)}
    name, version = pyruntime.name.split("-")[:2]
    entries[name] = _entry(name, version, pyruntime.name, sha256_of(pyruntime), depends=("minijinja", "numpy"))
    return (json.dumps({"info": official["info"], "packages": entries}, indent=1) + "\n").encode()


def _entry(name: str, version: str, file: str, sha256: str, *, depends: tuple[str, ...]) -> dict[str, Any]:
    return {
        "name": name,
        "version": version,
        "file_name": file,
        "install_dir": "site",
        "sha256": sha256,
        "package_type": "package",
        "imports": [name],
        "depends": list(depends),
        "unvendored_tests": False,
    }
