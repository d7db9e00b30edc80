"""What is pinned: `wheels/wheels.txt` (downloads) and `wheels/artefacts.toml` (every third-party file of the site).

Only reads and checks the two files; obtaining what they name is the work of `cache` and `npm`.
"""

from __future__ import annotations

import pathlib
import re
import tomllib
from dataclasses import dataclass
from typing import Any

from tooling.console import ToolingError
from tooling.paths import ROOT

WHEELS = ROOT / "wheels" / "wheels.txt"
ARTEFACTS = ROOT / "wheels" / "artefacts.toml"

_REQUIREMENT = re.compile(
    r"(?P<line>(?P<name>[a-z0-9-]+)==(?P<version>[0-9.]+) --hash=sha256:(?P<sha256>[0-9a-f]{64}))  # (?P<size>[0-9]+) bytes"
)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Wheel:
    """A wheel to download: pip's requirement line, and how many bytes will come."""

    name: str
    version: str
    size: int
    requirement: str


@dataclass(frozen=True)
class Artefact:
    """A file taken from a wheel: the wheel itself, or one member of it.

    `kind` is "package" or "model"; of a package, `left_out` is what the site leaves out, as patterns of its files' names.
    """

    kind: str
    name: str
    title: str
    version: str
    licence: str
    reason: str
    wheel: Wheel
    member: str | None
    file: str
    size: int
    sha256: str
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class NpmFile:
    """A file of an npm package, and its place in the site (None: read by the build only)."""

    source: str
    to: str | None
    sha256: str


@dataclass(frozen=True)
class NpmPackage:
    """An npm package and the files taken from it."""

    package: str
    version: str
    licence: str
    reason: str
    files: tuple[NpmFile, ...]


@dataclass(frozen=True)
class Pins:
    """Everything that is pinned."""

    artefacts: tuple[Artefact, ...]
    npm: tuple[NpmPackage, ...]

    @property
    def packages(self) -> tuple[Artefact, ...]:
        """The wheels that Pyodide installs."""
        return tuple(artefact for artefact in self.artefacts if artefact.kind == "package")

    @property
    def model(self) -> Artefact:
        """The default model."""
        (model,) = (artefact for artefact in self.artefacts if artefact.kind == "model")
        return model


def read_pins(artefacts: pathlib.Path = ARTEFACTS, wheels: pathlib.Path = WHEELS) -> Pins:
    """Both files, checked; raises ToolingError that names the line or field at fault."""
    by_name = {wheel.name: wheel for wheel in _read_wheels(wheels)}
    tables = tomllib.loads(artefacts.read_text(encoding="utf-8"))
    try:
        return Pins(tuple(_artefact(table, by_name) for table in tables["artefact"]), _npm_packages(tables))
    except (KeyError, TypeError) as error:
        raise ToolingError(f"{artefacts.name}: an entry lacks or misspells {error}") from error


def read_npm_pins(path: pathlib.Path) -> tuple[NpmPackage, ...]:
    """The npm packages of a file like `wheels/artefacts.toml` that has nothing else; raises as `read_pins`."""
    try:
        return _npm_packages(tomllib.loads(path.read_text(encoding="utf-8")))
    except (KeyError, TypeError) as error:
        raise ToolingError(f"{path.name}: an entry lacks or misspells {error}") from error


def _read_wheels(path: pathlib.Path) -> list[Wheel]:
    wheels = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = _REQUIREMENT.fullmatch(line)
        if match is None:
            raise ToolingError(
                f"{path.name} line {number}: {line!r} is not `name==version --hash=sha256:…  # N bytes`, as every wheel is pinned"
            )
        wheels.append(Wheel(match["name"], match["version"], int(match["size"]), match["line"]))
    return wheels


def _artefact(table: dict[str, Any], wheels: dict[str, Wheel]) -> Artefact:
    fields = {"title": "", "member": None, **table, "wheel": wheels[table["wheel"]]}
    fields["left_out"] = tuple(table.get("left_out", ()))
    artefact = Artefact(**fields)
    _check_sha256(artefact.file, artefact.sha256)
    return artefact


def _npm_packages(tables: dict[str, Any]) -> tuple[NpmPackage, ...]:
    return tuple(_npm_package(table) for table in tables["npm"])


def _npm_package(table: dict[str, Any]) -> NpmPackage:
    files = tuple(NpmFile(file["from"], file.get("to"), file["sha256"]) for file in table["files"])
    for file in files:
        _check_sha256(f"{table['package']}/{file.source}", file.sha256)
    return NpmPackage(**{**table, "files": files})


def _check_sha256(name: str, value: str) -> None:
    if not _SHA256.fullmatch(value):
        raise ToolingError(f"{ARTEFACTS.name}: {name}: sha256 {value!r} is not 64 lower-case hexadecimal digits")
