"""The Python files of the page, derived from those that are pinned: compiled, and without what the page never uses.

- Pyodide's standard library is whole. What a start imports is compiled; what is seldom imported stays text, which is smaller.
- A pinned wheel that has parts left out (`left_out` in wheels/artefacts.toml) is compiled as a whole.
- So is the wheel of `pyruntime`. The one with the sources lies beside it, for whoever installs it elsewhere.
"""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tooling.compiled import Archive, compile_archives
from tooling.pins import Artefact

STANDARD_LIBRARY = "python_stdlib.zip"

# What Pyodide imports to install wheels, and PyScript to start; `tests/browser/test_page_python.py` tells what is missing.
_STARTING = ("encodings.cp437", "html", "importlib.metadata", "tarfile")
_LIBRARY_FOLDER = "/lib/python314.zip"  # where Pyodide puts it, and wheels
_WHEELS_FOLDER = "/lib/python3.14/site-packages"


def python_of_page(
    packages: Iterable[Artefact], paths: Mapping[str, Path], wheel: Path, pyodide: Path
) -> dict[str, Path]:
    """The derived archives by their names: the standard library, wheels, and last the wheel of pyruntime.

    Args:
        packages: pinned wheels.
        paths: where they are, by name.
        wheel: that of pyruntime, with sources.
        pyodide: the folder of the npm package.
    """
    archives = [
        Archive(paths[package.name], package.file, _WHEELS_FOLDER, package.left_out)
        for package in packages
        if package.left_out
    ]
    archives.append(Archive(wheel, compiled_name(wheel), _WHEELS_FOLDER))
    library = pyodide / STANDARD_LIBRARY
    imports = tuple(sorted({*_STARTING, *library_imports(archives, library)}))
    whole = Archive(library, STANDARD_LIBRARY, _LIBRARY_FOLDER, imports=imports)
    return compile_archives([whole, *archives], pyodide)


def compiled_name(wheel: Path) -> str:
    """The name of a wheel for any Python when it is compiled by Pyodide's."""
    return wheel.name.replace("-py3-none-any", "-cp314-none-any")


def library_imports(archives: Iterable[Archive], library: Path) -> tuple[str, ...]:
    """The modules of the standard library that modules of `archives` import when they are imported themselves."""
    found: set[str] = set()
    for archive in archives:
        with zipfile.ZipFile(archive.source) as source:
            for name in source.namelist():
                if name.endswith(".py") and archive.is_kept(name):
                    found |= _imported(ast.parse(source.read(name)).body)
    with zipfile.ZipFile(library) as source:
        there = set(source.namelist())
    paths = {name: name.replace(".", "/") for name in found}
    return tuple(sorted(name for name, path in paths.items() if {f"{path}.py", f"{path}/__init__.py"} & there))


def _imported(statements: Sequence[ast.stmt]) -> set[str]:
    """Modules that statements at the top of a file import, those under a condition too."""
    found: set[str] = set()
    for statement in statements:
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            found.add(statement.module)
        elif isinstance(statement, ast.If | ast.Try):
            found |= _imported([*statement.body, *statement.orelse])
    return found
