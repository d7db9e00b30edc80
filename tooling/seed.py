"""Seed manifests of local model files: what the page needs to fetch a model and check every chunk.

The format is told in `docs/seed-manifest.md`. Bytes are served at `files/<sha256>/<name>` beside the manifest, an
address that never changes its content.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pyruntime.delivery.manifest import Manifest, describe_file, manifest_bytes, manifest_name
from pyruntime.errors import TinyPyLMError
from pyruntime.formats.gguf import read_gguf
from pyruntime.formats.source import FileSource, run_without_waiting
from tooling.console import Progress, ToolingError, human_size
from tooling.pins import Artefact

_LICENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:() -]{0,119}")  # as manifests allow it


@dataclass(frozen=True)
class Seed:
    """A model to serve: its manifest as JSON, the file, and the file's address relative to the manifest."""

    name: str
    manifest: bytes
    model: Path
    source: str


def seed_for_artefact(artefact: Artefact, model: Path) -> Seed:
    """The seed of the default model."""
    revision = f"{artefact.wheel.name}=={artefact.wheel.version}"
    return _make_seed(model, artefact.name, artefact.title, artefact.licence, revision)


def seed_for_file(model: Path) -> Seed:
    """The seed of any GGUF file, named after the file; raises ToolingError when it is no GGUF file."""
    if model.is_dir():
        raise ToolingError(f"--model {model}: it is a folder; give a .gguf file")
    try:
        licence = run_without_waiting(read_gguf(FileSource(model))).metadata.get("general.license")
    except TinyPyLMError as error:
        raise ToolingError(f"--model: {error}") from error
    except OSError as error:
        raise ToolingError(f"--model {model}: it cannot be read: {error.strerror}; give a .gguf file") from error
    if not (isinstance(licence, str) and _LICENCE.fullmatch(licence)):
        licence = "NOASSERTION"
    title = "".join(character if character.isprintable() else "-" for character in model.stem)[:120]
    return _make_seed(model, manifest_name(model.stem), title, licence, None)


def _make_seed(model: Path, name: str, title: str, licence: str, revision: str | None) -> Seed:
    with Progress(f"Hashing {model.name}", model.stat().st_size) as progress:
        file = describe_file(model, on_progress=progress.update)
        progress.finish(f"{human_size(file.size)}, {len(file.chunk_sha256)} chunks")
    manifest = Manifest(name, title, licence, revision or f"sha256:{file.sha256}", (file,))
    return Seed(name, manifest_bytes(manifest), model, file.sources[0])
