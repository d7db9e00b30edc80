"""Opening a model: from the bytes of its file to everything the engine needs except the weights themselves.

Reading is asynchronous because the browser's stores are; `open_model` is the same road for a path on disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyruntime.chat import ChatTemplate
from pyruntime.chat.marks import Marks, find_marks
from pyruntime.formats.gguf import GGUFFile, TensorInfo, read_gguf
from pyruntime.formats.source import ByteSource, FileSource, run_without_waiting
from pyruntime.model.config import ModelConfig, config_from_gguf
from pyruntime.tables_cache import TablesCache
from pyruntime.text import Tokenizer
from pyruntime.text.gguf_reader import spec_from_gguf
from pyruntime.text.tables_index import load_spec

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

_TEMPLATE_KEY = "tokenizer.chat_template"
# The tokens that end an answer, by the names the file declares them: end of sequence, of turn, of message; padding comes
# only after an end.
_END_TOKENS = ("eos_token", "eot_token", "eom_token", "pad_token")


@dataclass(frozen=True)
class GenerationDefaults:
    """What the model's publisher declares about generating with it.

    Attributes:
        stop_ids: token ids that end an answer.
    """

    stop_ids: frozenset[int]


@dataclass(frozen=True)
class OpenedModel:
    """A model file, read and checked, its weights still where they are.

    Attributes:
        config: the shape of the network.
        tokenizer: text ↔ token ids.
        template: the chat template; None if the file has none.
        marks: the control tokens by which the model marks thinking, calls and the end of its turn.
        generation: the tokens that end an answer.
        tensors: name → type, shape and place of every tensor.
        source: where the bytes come from.
        file: the parsed header, metadata included.
    """

    config: ModelConfig
    tokenizer: Tokenizer
    template: ChatTemplate | None
    marks: Marks
    generation: GenerationDefaults
    tensors: Mapping[str, TensorInfo]
    source: ByteSource
    file: GGUFFile

    @property
    def name(self) -> str:
        """The model's own name, or else the file's."""
        declared = self.file.metadata.get("general.name")
        return declared if isinstance(declared, str) and declared else self.source.name


def open_model(path: str | os.PathLike[str]) -> OpenedModel:
    """The model in a `.gguf` file.

    Raises:
        OSError: the file cannot be read.
        FormatError: the file is damaged or lies; the message names file and field.
        UnsupportedError: the file needs something this runtime does not do.
        TemplateError: its chat template does not compile.
    """
    return run_without_waiting(read_model(FileSource(path)))


async def read_model(source: ByteSource, *, tables: TablesCache | None = None) -> OpenedModel:
    """As `open_model`, from any byte source.

    Args:
        source: the file.
        tables: where its compiled tokenizer tables are kept, if anywhere.
    """
    file = await read_gguf(source)
    config = config_from_gguf(file.metadata, file.tensors, source.name)
    tokenizer = await _tokenizer(file, tables)
    text = file.metadata.get(_TEMPLATE_KEY)
    template = None if text is None else ChatTemplate(text, tokenizer.special_tokens, tokenizer)
    marks = find_marks(template, tokenizer) if template else Marks()
    return OpenedModel(
        config=config,
        tokenizer=tokenizer,
        template=template,
        marks=marks,
        generation=GenerationDefaults(stop_ids=_stop_ids(tokenizer, marks)),
        tensors=file.tensors,
        source=source,
        file=file,
    )


async def _tokenizer(file: GGUFFile, tables: TablesCache | None) -> Tokenizer:
    if tables is None:
        return Tokenizer.from_metadata(file.metadata, file.name)
    loaded = load_spec(await tables.get(), tables.source_sha256, lambda: spec_from_gguf(file.metadata, file.name))
    if loaded.made is not None:
        await tables.put(loaded.made)
    return Tokenizer(loaded.spec)


def _stop_ids(tokenizer: Tokenizer, marks: Marks) -> frozenset[int]:
    ids = {tokenizer.special_ids[name] for name in _END_TOKENS if name in tokenizer.special_ids}
    return frozenset(ids if marks.turn_end is None else ids | {marks.turn_end})
