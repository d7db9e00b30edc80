"""Seed manifests of local models: what the page needs to fetch a model's files and check every chunk.

The format is told in `docs/seed-manifest.md`. Bytes are served at `files/<sha256>/<name>` beside the manifest, an
address that never changes its content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pyruntime.delivery.manifest import Manifest, ManifestFile, describe_file, manifest_bytes, manifest_name
from pyruntime.errors import TinyPyLMError
from pyruntime.formats.gguf import read_gguf
from pyruntime.formats.model_files import ModelFiles, layout_of
from pyruntime.formats.safetensors_shards import needed_files
from pyruntime.formats.source import FileSource, run_without_waiting
from tooling.console import Progress, ToolingError, human_size
from tooling.pins import Artefact

_LICENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:() -]{0,119}")  # as manifests allow it
_UNKNOWN_LICENCE = "NOASSERTION"
_WANTED = "give a .gguf file or a model folder"


@dataclass(frozen=True)
class Seed:
    """A model to serve.

    Attributes:
        name: its short name.
        manifest: as JSON.
        files: address relative to the manifest → the file.
    """

    name: str
    manifest: bytes
    files: Mapping[str, Path]


def seed_for_artefact(artefact: Artefact, model: Path) -> Seed:
    """The seed of the default model."""
    revision = f"{artefact.wheel.name}=={artefact.wheel.version}"
    return _make_seed([model], artefact.name, artefact.title, artefact.licence, revision)


def seed_for_model(path: Path) -> Seed:
    """The seed of any model, named after its file or folder; raises ToolingError when there is no model."""
    try:
        return _seed_for_folder(path) if path.is_dir() else seed_for_file(path)
    except TinyPyLMError as error:
        raise ToolingError(f"--model: {error}") from error
    except OSError as error:
        raise ToolingError(f"--model {path}: it cannot be read: {error.strerror}; {_WANTED}") from error


def seed_for_file(model: Path) -> Seed:
    """The seed of a GGUF file; errors as `read_gguf`."""
    licence = run_without_waiting(read_gguf(FileSource(model))).metadata.get("general.license")
    if not (isinstance(licence, str) and _LICENCE.fullmatch(licence)):
        licence = _UNKNOWN_LICENCE
    return _make_seed([model], manifest_name(model.stem), _title(model.stem), licence, None)


def _seed_for_folder(folder: Path) -> Seed:
    """The seed of those files of a model folder that opening it reads."""
    files = ModelFiles.in_folder(folder)
    layout = layout_of(files.sources, where=files.name)
    if layout.is_gguf:
        return seed_for_file(folder / layout.weights)
    paths = [folder / name for name in run_without_waiting(needed_files(files, layout))]
    return _make_seed(paths, manifest_name(files.name), _title(files.name), _UNKNOWN_LICENCE, None)


def _title(name: str) -> str:
    """A manifest's title from a file's name."""
    return "".join(character if character.isprintable() else "-" for character in name)[:120]


def _make_seed(paths: list[Path], name: str, title: str, licence: str, revision: str | None) -> Seed:
    described = [_describe(path) for path in paths]
    if len(paths) > 1:
        for path, file in zip(paths, described, strict=True):
            if file.path != path.name:  # the index of the weights would not find it
                raise ToolingError(f"--model: {path.name}: a manifest does not allow this name; rename the file")
    if revision is None:
        digests = [file.sha256 for file in described]
        revision = f"sha256:{digests[0] if len(digests) == 1 else sha256(''.join(digests).encode()).hexdigest()}"
    manifest = Manifest(name, title, licence, revision, tuple(described))
    places = {file.sources[0]: path for path, file in zip(paths, described, strict=True)}
    return Seed(name, manifest_bytes(manifest), places)


def _describe(path: Path) -> ManifestFile:
    with Progress(f"Hashing {path.name}", path.stat().st_size) as progress:
        file = describe_file(path, on_progress=progress.update)
        progress.finish(f"{human_size(file.size)}, {len(file.chunk_sha256)} chunks")
    return file
