"""The tensors of a model in safetensors: in one file, or in several that an index names.

The index says for each tensor which file it is in. It must agree with the files: a tensor that is not where the index
says, and one that the index does not know, are refused, because two readers would understand them differently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyruntime.errors import FormatError, label, shorten
from pyruntime.formats.model_files import CONFIG, OPTIONAL, TOKENIZER, WEIGHTS_INDEX, Layout, ModelFiles
from pyruntime.formats.safetensors import read_safetensors
from pyruntime.formats.source import read_whole
from pyruntime.formats.strict_json import parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyruntime.formats.tensor_info import TensorInfo

MAX_INDEX_BYTES = 8 * 1024 * 1024
_MAX_DEPTH = 8
_MAX_VALUES = 1 << 18
_MAP = "weight_map"


async def read_tensors(files: ModelFiles, layout: Layout) -> Mapping[str, TensorInfo]:
    """Name → place of every tensor of a model folder.

    Args:
        files: the model's.
        layout: what they are; not that of a GGUF file.

    Raises:
        FormatError: a file is missing or damaged, or the index and the files disagree; names file and field.
        UnsupportedError: a tensor's type is not supported.
    """
    if layout.weights != WEIGHTS_INDEX:
        return (await read_safetensors(files.open(layout.weights))).tensors
    wanted = await _read_index(files)
    tensors: dict[str, TensorInfo] = {}
    for shard in dict.fromkeys(wanted.values()):
        for name, tensor in (await read_safetensors(files.open(shard))).tensors.items():
            if wanted.get(name) != shard:
                said = f"in {label(wanted[name])}" if name in wanted else "nowhere"
                raise FormatError(shard, f"tensor {label(name)}", f"it is here, and {WEIGHTS_INDEX} has it {said}")
            tensors[name] = tensor
    missing = next((name for name in wanted if name not in tensors), None)
    if missing is not None:
        problem = f"it is not here, where {WEIGHTS_INDEX} has it"
        raise FormatError(wanted[missing], f"tensor {label(missing)}", problem)
    return tensors


async def needed_files(files: ModelFiles, layout: Layout) -> list[str]:
    """The names of those files of a model folder that opening it reads, in the order in which to fetch them.

    Raises:
        FormatError: the index is damaged, or names a file that is missing.
    """
    names = [CONFIG, TOKENIZER, *(name for name in OPTIONAL if files.find(name)), layout.weights]
    if layout.weights == WEIGHTS_INDEX:
        names += dict.fromkeys((await _read_index(files)).values())
    return names


async def _read_index(files: ModelFiles) -> dict[str, str]:
    """Tensor → the file it is in; every such file is one of `files`."""
    data = await read_whole(files.open(WEIGHTS_INDEX), MAX_INDEX_BYTES)
    index: Any = parse_json(
        data, name=WEIGHTS_INDEX, max_bytes=MAX_INDEX_BYTES, max_depth=_MAX_DEPTH, max_values=_MAX_VALUES
    )
    table = index.get(_MAP) if isinstance(index, dict) else None
    if not isinstance(table, dict) or not table:
        raise FormatError(WEIGHTS_INDEX, _MAP, shorten(table), allowed="an object of tensors and their files")
    for tensor, shard in table.items():
        field = f"{_MAP}: {label(tensor)}"
        if not isinstance(shard, str) or not shard.endswith(".safetensors") or "/" in shard:
            raise FormatError(WEIGHTS_INDEX, field, shorten(shard), allowed="the name of a .safetensors file")
        if files.find(shard) is None:
            raise FormatError(WEIGHTS_INDEX, field, f"the file {label(shard)} is missing from {files.name}")
    return table
