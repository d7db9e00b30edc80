"""Seed manifests of local model files: what the page needs to fetch a model and check every chunk.

The format is told in `docs/seed-manifest.md`. Bytes are served at `files/<sha256>/<name>` beside the manifest, an
address that never changes its content.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from pyruntime.errors import TinyPyLMError
from pyruntime.formats.gguf import read_gguf
from pyruntime.formats.source import FileSource, run_without_waiting
from tooling.console import Progress, ToolingError, human_size
from tooling.hashes import sha256_by_chunk
from tooling.pins import Artefact

CHUNK_SIZE = 8 * 1024 * 1024
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
    return _make_seed(model, _slug(model.stem), title, licence, None)


def _make_seed(model: Path, name: str, title: str, licence: str, revision: str | None) -> Seed:
    with Progress(f"Hashing {model.name}", model.stat().st_size) as progress:
        sha256, chunks = sha256_by_chunk(model, CHUNK_SIZE, progress.update)
        size = model.stat().st_size
        progress.finish(f"{human_size(size)}, {len(chunks)} chunks")
    path = re.sub(r"[^A-Za-z0-9._+-]", "-", model.name)[-200:].lstrip(".+-")
    source = f"files/{sha256}/{path}"
    file = {
        "path": path,
        "size": size,
        "sha256": sha256,
        "chunk_size": CHUNK_SIZE,
        "chunk_sha256": chunks,
        "sources": [source],
    }
    manifest = {
        "seed": 1,
        "name": name,
        "title": title,
        "license": licence,
        "revision": revision or f"sha256:{sha256}",
        "files": [file],
    }
    return Seed(name, (json.dumps(manifest, indent=1) + "\n").encode(), model, source)


def _slug(text: str) -> str:
    """A name as manifests allow it: lower case, at most 64 characters."""
    slug = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("._-")[:64]
    return slug or "model"
