"""From the bytes of a stored tensor to float32, exactly.

- F32, F16, BF16, Q8_0, Q4_0 and Q4_1, each by one small function that unpacks a run of blocks.
- The work goes block run by block run into an array that may be given, so the memory beyond input and output
  stays below about 1 MB whatever the tensor's size.
- A value or scale that is not finite is refused here: inside a model it would silently spoil every answer.
- It does not know files or models: `file` and `tensor` are only the names that errors show.

Block layouts: the GGUF specification, "Quantization" (ggml's block_q8_0, block_q4_0, block_q4_1). A block holds 32
neighbouring values of a row; in the 4-bit types the low nibbles are the first 16 of them, the high nibbles the rest.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pyruntime.errors import FormatError, ParameterError, UnsupportedError, shorten
from pyruntime.formats.tensor_types import TENSOR_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Blocks = NDArray[np.uint8]  # (blocks, bytes of a block)
Values = NDArray[np.float32]  # (blocks, values of a block)

# 2^16 values at a time: the temporaries fit the second-level cache. In WebAssembly larger runs gain nothing.
_VALUES_AT_A_TIME = 65_536


def dequantize(
    data: bytes | memoryview,
    type_name: str,
    shape: Sequence[int],
    *,
    file: str = "<bytes>",
    tensor: str = "<tensor>",
    out: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """The float32 values, of shape `shape`, that `data` stores as type `type_name`.

    Args:
        data: the tensor's bytes, or those of a range of whole rows.
        type_name: a key of `TENSOR_TYPES`.
        shape: in numpy order; blocks run along the last dimension.
        file: the file's name, for errors.
        tensor: the tensor's name, for errors.
        out: where to write; C-contiguous float32 of `shape`. Made when not given.

    Raises:
        UnsupportedError: the type is not one of those above.
        FormatError: `shape` and the number of bytes disagree, or a scale or value is not finite.
        ParameterError: `out` is not such an array.
    """
    type_ = TENSOR_TYPES.get(type_name)
    if type_ is None or type_name not in _UNPACK:
        raise UnsupportedError(file, tensor, f"its type is {shorten(type_name)}", allowed=", ".join(_UNPACK))
    columns = shape[-1] if shape else 1
    if columns % type_.block_size:
        raise FormatError(file, tensor, f"a row has {columns} values", allowed=f"a multiple of {type_.block_size}")
    n_blocks = prod(shape) // type_.block_size
    if len(data) != n_blocks * type_.block_bytes:
        raise FormatError(
            file, tensor, f"{len(data)} bytes", allowed=f"{n_blocks * type_.block_bytes} for {tuple(shape)}"
        )
    if out is None:
        out = np.empty(shape, np.float32)
    elif out.shape != tuple(shape) or out.dtype != np.float32 or not out.flags.c_contiguous:
        raise ParameterError("out", f"{out.dtype}{out.shape}", f"C-contiguous float32{tuple(shape)}")

    blocks = np.frombuffer(data, np.uint8).reshape(n_blocks, type_.block_bytes)
    values = out.reshape(n_blocks, type_.block_size)
    unpack, step = _UNPACK[type_name], _VALUES_AT_A_TIME // type_.block_size
    for start in range(0, n_blocks, step):
        with np.errstate(invalid="ignore"):  # what it would warn of is looked for just below
            decisive = unpack(blocks[start : start + step], values[start : start + step])
        if not np.isfinite(decisive).all():
            bad = decisive[~np.isfinite(decisive)][0]
            what = "value" if type_.block_size == 1 else "scale"
            raise FormatError(file, tensor, f"a {what} is {bad}", allowed="finite numbers")
    return out


# Each function below writes the values of `blocks` into `values` and returns the array that decides whether all of
# them are finite: the values themselves, or the scales (a finite float16 times at most 128 cannot overflow float32).


def _unpack_f32(blocks: Blocks, values: Values) -> Values:
    values[...] = blocks.view("<f4")
    return values


def _unpack_f16(blocks: Blocks, values: Values) -> Values:
    values[...] = blocks.view("<f2")
    return values


def _unpack_bf16(blocks: Blocks, values: Values) -> Values:
    np.left_shift(blocks.view("<u2"), 16, out=values.view(np.uint32), dtype=np.uint32)
    return values


def _unpack_q8_0(blocks: Blocks, values: Values) -> Values:
    scale = _float16_fields(blocks, 0, 2)
    np.multiply(blocks[:, 2:].view(np.int8), scale, out=values)
    return scale


def _unpack_q4_0(blocks: Blocks, values: Values) -> Values:
    scale = _float16_fields(blocks, 0, 2)
    _unpack_nibbles(blocks[:, 2:], values)
    values -= 8
    values *= scale
    return scale


def _unpack_q4_1(blocks: Blocks, values: Values) -> Values:
    scale_and_minimum = _float16_fields(blocks, 0, 4)
    _unpack_nibbles(blocks[:, 4:], values)
    values *= scale_and_minimum[:, :1]
    values += scale_and_minimum[:, 1:]
    return scale_and_minimum


def _float16_fields(blocks: Blocks, start: int, stop: int) -> Values:
    """The float16 numbers in bytes `start..stop` of each block, as float32 (blocks, numbers)."""
    return blocks[:, start:stop].view("<f2").astype(np.float32)


def _unpack_nibbles(packed: Blocks, values: Values) -> None:
    half = packed.shape[1]
    values[:, :half] = packed & 15
    values[:, half:] = packed >> 4


_UNPACK: dict[str, Callable[[Blocks, Values], Values]] = {
    "F32": _unpack_f32,
    "F16": _unpack_f16,
    "BF16": _unpack_bf16,
    "Q8_0": _unpack_q8_0,
    "Q4_0": _unpack_q4_0,
    "Q4_1": _unpack_q4_1,
}
