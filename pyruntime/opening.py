"""Opening a model: from the bytes of its files to everything the engine needs except the weights themselves.

A model is one GGUF file, or a folder as Hugging Face models come in. Reading is asynchronous because the browser's stores
are; `open_model` is the same road for a path on disk.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyruntime.chat import ChatTemplate
from pyruntime.chat.marks import Marks, find_marks
from pyruntime.errors import FormatError, shorten
from pyruntime.formats.gguf import read_gguf
from pyruntime.formats.model_files import (
    CHAT_TEMPLATE,
    CONFIG,
    GENERATION_CONFIG,
    TOKENIZER,
    TOKENIZER_CONFIG,
    Layout,
    ModelFiles,
    layout_of,
)
from pyruntime.formats.safetensors_shards import read_tensors
from pyruntime.formats.source import ByteSource, FileSource, read_whole, run_without_waiting
from pyruntime.model import hf_config
from pyruntime.model.config import ModelConfig, read_gguf_config
from pyruntime.text import Tokenizer, tokenizer_config, tokenizer_json
from pyruntime.text.gguf_reader import spec_from_gguf
from pyruntime.text.tables_index import load_spec
from pyruntime.weights.stored import StoredWeights

if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable, Mapping

    from pyruntime.formats.tensor_info import TensorInfo
    from pyruntime.tables_cache import TablesCache
    from pyruntime.text.spec import TokenizerSpec

_TEMPLATE_KEY = "tokenizer.chat_template"
_VOCABULARY = tuple(f"tokenizer.ggml.{name}" for name in ("tokens", "scores", "token_type", "merges"))
_MAX_TEMPLATE_BYTES = 1 << 20
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
    """A model, read and checked, its weights still where they are.

    Attributes:
        name: the model's own name, or else that of its file or folder.
        config: the shape of the network.
        tokenizer: text ↔ token ids.
        template: the chat template; None if the model has none.
        marks: the control tokens by which the model marks thinking, calls and the end of its turn.
        generation: the tokens that end an answer.
        weights: where the weights are.
        metadata: what else its publisher says: a GGUF file's metadata (without its vocabulary where that has compiled tables),
            or a folder's config.json.
    """

    name: str
    config: ModelConfig
    tokenizer: Tokenizer
    template: ChatTemplate | None
    marks: Marks
    generation: GenerationDefaults
    weights: StoredWeights
    metadata: Mapping[str, Any]

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Name → type, shape and place of every tensor."""
        return self.weights.tensors

    @property
    def file_name(self) -> str:
        """The name of the model's file or folder, as errors show it."""
        return self.weights.name


def open_model(path: str | os.PathLike[str]) -> OpenedModel:
    """The model in a `.gguf` file or in a folder.

    Raises:
        OSError: a file cannot be read.
        FormatError: a file is missing, damaged or lies; the message names file and field.
        UnsupportedError: the model needs something this runtime does not do.
        TemplateError: its chat template does not compile.
    """
    return run_without_waiting(read_model(files_at(path)))


def files_at(path: str | os.PathLike[str]) -> ByteSource | ModelFiles:
    """The model file or the files of the folder at a path; OSError when it cannot be read."""
    return ModelFiles.in_folder(Path(path)) if Path(path).is_dir() else FileSource(path)


async def read_model(source: ByteSource | ModelFiles, *, tables: TablesCache | None = None) -> OpenedModel:
    """As `open_model`, from wherever the bytes are.

    Args:
        source: a GGUF file, or the files of a model.
        tables: where its compiled tokenizer tables are kept, if anywhere.
    """
    if not isinstance(source, ModelFiles):
        return await _read_gguf_model(source, tables)
    layout = layout_of(source.sources, where=source.name)
    if layout.is_gguf:
        return await _read_gguf_model(source.open(layout.weights), tables)
    return await _read_folder(source, layout, tables)


async def _read_gguf_model(source: ByteSource, tables: TablesCache | None) -> OpenedModel:
    file = await read_gguf(source)
    config = await read_gguf_config(file, source)
    if tables is not None:
        # A page's memory never shrinks: the vocabulary goes before its tables come, and is read again if they are not good.
        file = replace(file, metadata={key: file.metadata[key] for key in file.metadata if key not in _VOCABULARY})

    async def read_spec() -> TokenizerSpec:
        whole = file if tables is None else await read_gguf(source)
        return spec_from_gguf(whole.metadata, whole.name)

    spec = await _spec(tables, read_spec)
    declared = file.metadata.get("general.name")
    return _opened(
        name=declared if isinstance(declared, str) and declared else file.name,
        config=config,
        tokenizer=Tokenizer(spec),
        template=file.metadata.get(_TEMPLATE_KEY),
        stop_ids=frozenset(),
        weights=StoredWeights.of_gguf(file, source),
        metadata=file.metadata,
    )


async def _read_folder(files: ModelFiles, layout: Layout, tables: TablesCache | None) -> OpenedModel:
    """The model in the files of a folder."""
    settings = hf_config.parse_config(await read_whole(files.open(CONFIG), hf_config.MAX_BYTES), CONFIG)
    config = hf_config.config_from_json(settings, CONFIG)
    tensors = await read_tensors(files, layout)
    named = await _tokenizer_config(files)
    data = await read_whole(files.open(TOKENIZER), tokenizer_json.MAX_BYTES)

    async def read_spec() -> TokenizerSpec:
        return tokenizer_json.spec_from_tokenizer_json(data, TOKENIZER)

    spec = await _spec(tables, read_spec)
    tokenizer = Tokenizer(spec, named)
    if tokenizer.vocab_size > config.vocab_size:
        problem = f"{tokenizer.vocab_size} ids while {CONFIG} has a vocab_size of {config.vocab_size}"
        raise FormatError(TOKENIZER, "model.vocab", problem, allowed=f"at most {config.vocab_size}")
    return _opened(
        name=files.name,
        config=config,
        tokenizer=tokenizer,
        template=await _template(files, named),
        stop_ids=await _declared_stop_ids(files, settings, config.vocab_size),
        weights=StoredWeights.of_folder(files, tensors, tied=config.tied_embeddings),
        metadata=settings,
    )


def _opened(
    *,
    name: str,
    config: ModelConfig,
    tokenizer: Tokenizer,
    template: str | None,
    stop_ids: frozenset[int],
    weights: StoredWeights,
    metadata: Mapping[str, Any],
) -> OpenedModel:
    """The model of these parts; `stop_ids` are those declared beside the tokenizer's."""
    compiled = None if template is None else ChatTemplate(template, tokenizer.special_tokens, tokenizer)
    marks = find_marks(compiled, tokenizer) if compiled else Marks()
    ends = {tokenizer.special_ids[end] for end in _END_TOKENS if end in tokenizer.special_ids} | stop_ids
    if marks.turn_end is not None:
        ends.add(marks.turn_end)
    generation = GenerationDefaults(stop_ids=frozenset(ends))
    return OpenedModel(name, config, tokenizer, compiled, marks, generation, weights, metadata)


async def _spec(tables: TablesCache | None, read: Callable[[], Awaitable[TokenizerSpec]]) -> TokenizerSpec:
    """The tokenizer, from its compiled tables where there are some."""
    if tables is None:
        return await read()
    loaded = await load_spec(await tables.get(), tables.source_sha256, read)
    if loaded.made is not None:
        await tables.put(loaded.made)
    return loaded.spec


async def _tokenizer_config(files: ModelFiles) -> tokenizer_config.TokenizerConfig | None:
    source = files.find(TOKENIZER_CONFIG)
    if source is None:
        return None
    data = await read_whole(source, tokenizer_config.MAX_BYTES)
    return tokenizer_config.read_tokenizer_config(data, TOKENIZER_CONFIG)


async def _template(files: ModelFiles, named: tokenizer_config.TokenizerConfig | None) -> str | None:
    """The chat template: in a file of its own, which comes first in the reference too, or else among the named ones."""
    source = files.find(CHAT_TEMPLATE)
    if source is None:
        return None if named is None else named.chat_templates.get("default")
    try:
        return (await read_whole(source, _MAX_TEMPLATE_BYTES)).decode()
    except UnicodeDecodeError as error:
        raise FormatError(CHAT_TEMPLATE, "text", f"not UTF-8 at byte {error.start}") from error


async def _declared_stop_ids(files: ModelFiles, settings: dict[str, Any], vocab_size: int) -> frozenset[int]:
    """What generation_config.json and config.json say ends an answer."""
    ids = _end_ids(settings, CONFIG, vocab_size)
    source = files.find(GENERATION_CONFIG)
    if source is None:
        return ids
    generation = hf_config.parse_config(await read_whole(source, hf_config.MAX_BYTES), GENERATION_CONFIG)
    return ids | _end_ids(generation, GENERATION_CONFIG, vocab_size)


def _end_ids(settings: dict[str, Any], file: str, vocab_size: int) -> frozenset[int]:
    """The `eos_token_id` of a file, of which there may be none, one or several."""
    found = settings.get("eos_token_id")
    ids = [] if found is None else found if isinstance(found, list) else [found]
    for token_id in ids:
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            raise FormatError(file, "eos_token_id", shorten(token_id), allowed=f"ids from 0 to {vocab_size - 1}")
    return frozenset(ids)
