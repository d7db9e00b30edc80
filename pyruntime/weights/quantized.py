"""From the bytes of a stored tensor to float32, exactly.

- Every type of `TENSOR_TYPES`, each by one small function that unpacks a run of blocks.
- The work goes block run by block run into an array that may be given, so the memory beyond input and output
  stays below about 1 MB whatever the tensor's size.
- A value or scale that is not finite is refused here: inside a model it would silently spoil every answer.
- It does not know files or models: `file` and `tensor` are only the names that errors show.

Block layouts: the GGUF specification, "Quantization" (ggml's block_q8_0, block_q4_0 … block_q6_K).

- A block holds 32 neighbouring values of a row, in the K types 256: 8 runs of 32 with a scale and a minimum each (Q4_K,
  Q5_K), or 16 runs of 16 with a scale each (Q6_K). The scales of runs are small integers, to be multiplied with the block's.
- Nibbles come in groups of 16, 32 or 64 bytes. The low nibbles of a group are its first values, the high ones the rest.
- What an integer has beyond 4 bits lies apart, packed by value (Q5_0, Q5_1) or by run (Q5_K, Q6_K).
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
        UnsupportedError: the type is none of these.
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
# them are finite: the values themselves, or the scales (a finite float16 times integers below 2^13 cannot overflow float32).


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


def _unpack_q5_0(blocks: Blocks, values: Values) -> Values:
    scale = _float16_fields(blocks, 0, 2)
    _unpack_nibbles(blocks[:, 6:], values)
    values += 16 * np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little")
    values -= 16
    values *= scale
    return scale


def _unpack_q5_1(blocks: Blocks, values: Values) -> Values:
    scale_and_minimum = _float16_fields(blocks, 0, 4)
    _unpack_nibbles(blocks[:, 8:], values)
    values += 16 * np.unpackbits(blocks[:, 4:8], axis=1, bitorder="little")
    values *= scale_and_minimum[:, :1]
    values += scale_and_minimum[:, 1:]
    return scale_and_minimum


def _unpack_q4_k(blocks: Blocks, values: Values) -> Values:
    _unpack_nibbles(blocks[:, 16:].reshape(-1, 4, 32), values.reshape(-1, 4, 64))
    return _scale_runs(blocks, values.reshape(-1, 8, 32))


def _unpack_q5_k(blocks: Blocks, values: Values) -> Values:
    runs = values.reshape(-1, 8, 32)
    _unpack_nibbles(blocks[:, 48:].reshape(-1, 4, 32), values.reshape(-1, 4, 64))
    runs += (blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1) * 16
    return _scale_runs(blocks, runs)


def _unpack_q6_k(blocks: Blocks, values: Values) -> Values:
    _unpack_nibbles(blocks[:, :128].reshape(-1, 2, 64), values.reshape(-1, 2, 128))
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    upper = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts & 3
    quarters = values.reshape(-1, 2, 4, 32)
    quarters += upper * 16
    quarters -= 32
    scale = _float16_fields(blocks, 208, 210)
    runs = values.reshape(-1, 16, 16)
    runs *= (blocks[:, 192:208].view(np.int8) * scale)[..., None]
    return scale


def _scale_runs(blocks: Blocks, runs: Values) -> Values:
    """Turn the integers `runs` (blocks, 8, 32) of Q4_K or Q5_K into values: scale · integer − minimum.

    Scales and minima of runs have 6 bits. Those of the first 4 runs are the lower bits of bytes 0 … 3 and 4 … 7; of the
    last 4, bytes 8 … 11 hold the lower 4 bits of both, and the two upper bits of the bytes before hold the rest.
    """
    factors = _float16_fields(blocks, 0, 4)
    first, second, third = (blocks[:, start : start + 4] for start in (4, 8, 12))
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=1)
    minima = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)
    runs *= (scales * factors[:, :1])[..., None]
    runs -= (minima * factors[:, 1:])[..., None]
    return factors


def _float16_fields(blocks: Blocks, start: int, stop: int) -> Values:
    """The float16 numbers in bytes `start..stop` of each block, as float32 (blocks, numbers)."""
    return blocks[:, start:stop].view("<f2").astype(np.float32)


def _unpack_nibbles(packed: Blocks, values: Values) -> None:
    """Low nibbles of each group (…, bytes) into the first half of its values (…, 2 · bytes), high ones into the second."""
    half = packed.shape[-1]
    values[..., :half] = packed & 15
    values[..., half:] = packed >> 4


_UNPACK: dict[str, Callable[[Blocks, Values], Values]] = {
    "F32": _unpack_f32,
    "F16": _unpack_f16,
    "BF16": _unpack_bf16,
    "Q8_0": _unpack_q8_0,
    "Q4_0": _unpack_q4_0,
    "Q4_1": _unpack_q4_1,
    "Q5_0": _unpack_q5_0,
    "Q5_1": _unpack_q5_1,
    "Q4_K": _unpack_q4_k,
    "Q5_K": _unpack_q5_k,
    "Q6_K": _unpack_q6_k,
}
