"""The files of one model, and which of them is what: a GGUF file alone, or a folder as Hugging Face models come in.

Where the files are, on a disk or in a browser's store, is the business of their byte sources. Only files of the folder
itself belong to a model; a name with a path in it is never looked up on a disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyruntime.errors import FormatError, label
from pyruntime.formats.source import ByteSource, FileSource

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
OPTIONAL = (TOKENIZER_CONFIG, CHAT_TEMPLATE, GENERATION_CONFIG)

_ADVICE = f"A model folder has {CONFIG}, {TOKENIZER} and {WEIGHTS}, or {WEIGHTS_INDEX} and the files it names"


@dataclass(frozen=True)
class ModelFiles:
    """The files of one model.

    Attributes:
        name: the model's, as errors show it.
        sources: file name → its bytes.
    """

    name: str
    sources: Mapping[str, ByteSource]

    @classmethod
    def in_folder(cls, folder: Path) -> ModelFiles:
        """Those that lie in a folder on disk.

        Raises:
            OSError: it cannot be read.
        """
        paths = sorted(path for path in folder.iterdir() if path.is_file())
        return cls(folder.resolve().name, {path.name: FileSource(path) for path in paths})

    def open(self, name: str) -> ByteSource:
        """A file's bytes; FormatError when there is no such file."""
        if name not in self.sources:
            raise FormatError(self.name, label(name), "the file is missing", advice=_ADVICE)
        return self.sources[name]

    def find(self, name: str) -> ByteSource | None:
        """A file's bytes; None when there is no such file."""
        return self.sources.get(name)


@dataclass(frozen=True)
class Layout:
    """Which file of a model is what.

    Attributes:
        weights: the GGUF file; or else the safetensors file, or the index of several.
        tokenizer: what the tokenizer is made from: the GGUF file, or `TOKENIZER`.
    """

    weights: str
    tokenizer: str

    @property
    def is_gguf(self) -> bool:
        """Whether one GGUF file is the whole model."""
        return self.weights == self.tokenizer


def layout_of(names: Collection[str], *, where: str) -> Layout:
    """What a model with these files is.

    Args:
        names: of its files.
        where: whose files they are, for errors.

    Raises:
        FormatError: it has no weights that can be read, or several kinds of them, or lacks a file that it needs.
    """
    if not any(name.endswith(".safetensors") and "/" not in name for name in names):
        found = [name for name in names if name.endswith(".gguf")]
        if len(found) != 1:
            problem = f"{len(found)} files end in .gguf and none in .safetensors"
            raise FormatError(where, "files", problem, allowed="one .gguf file, or a model folder", advice=_ADVICE)
        return Layout(found[0], found[0])
    weights = WEIGHTS if WEIGHTS in names else WEIGHTS_INDEX
    for name in (CONFIG, TOKENIZER, weights):
        if name not in names:
            raise FormatError(where, name, "the file is missing", advice=_ADVICE)
    return Layout(weights, TOKENIZER)
