"""Bytes of tensors, in every type that model files use: any blocks at all, and given values quantised.

What the `gguf` package can quantise, it quantises. It reads K types but does not write them; they are made here, by the
simplest rule their layout allows (files come from converters that search for better scales).
"""

from __future__ import annotations

import gguf
import numpy as np

from pyruntime.formats.tensor_types import TENSOR_TYPES

FLOATS = ("F32", "F16", "BF16")
# Where the float16 scales of a block begin.
SCALES = {
    "Q8_0": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
}  # fmt: skip


def random_tensor(random, type_name, rows, columns):
    """A tensor of small numbers: random blocks, so that every bit of their integers is used."""
    if type_name in FLOATS:
        return quantize(random.standard_normal((rows, columns)).astype(np.float32), type_name)
    _, block_size, block_bytes = TENSOR_TYPES[type_name]
    blocks = random.integers(0, 256, (rows * columns // block_size, block_bytes), np.uint8)
    size = 0.001 if block_size == 256 else 0.05  # K types multiply it by up to 127
    for start in SCALES[type_name]:
        scales = (random.standard_normal((len(blocks), 1)) * size).astype("<f2")
        blocks[:, start : start + 2] = scales.view(np.uint8)
    return blocks.tobytes()


def quantize(values, type_name):
    """`values` (rows, columns), float32, as a tensor of that type."""
    own = {"Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k}.get(type_name)
    if own is None:
        return gguf.quants.quantize(values, gguf.GGMLQuantizationType[type_name]).tobytes()
    return own(values.reshape(-1, 256)).tobytes()


def _q4_k(blocks):
    head, q = _runs_with_minima(blocks, 15)
    return np.concatenate([head, _nibbles(q.reshape(-1, 4, 64))], axis=1)


def _q5_k(blocks):
    head, q = _runs_with_minima(blocks, 31)
    fifth = ((q >> 4) << np.arange(8, dtype=np.uint8)[:, None]).sum(axis=1, dtype=np.uint8)
    return np.concatenate([head, fifth, _nibbles((q & 15).reshape(-1, 4, 64))], axis=1)


def _q6_k(blocks):
    runs = blocks.reshape(-1, 16, 16)
    furthest = np.take_along_axis(runs, np.abs(runs).argmax(axis=2)[..., None], axis=2)[..., 0]
    steps = furthest / -32  # the value that is furthest from 0 becomes -32
    factor, integers = _integers(steps, 127)
    step = (factor.astype(np.float32) * integers)[..., None]
    q = np.divide(runs, step, out=np.zeros_like(runs), where=step != 0)
    q = (np.rint(q).clip(-32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    upper = ((q >> 4) << np.arange(0, 8, 2, dtype=np.uint8)[:, None]).sum(axis=2, dtype=np.uint8)
    parts = _nibbles((q & 15).reshape(-1, 2, 128)), upper.reshape(-1, 64), integers.astype(np.int8).view(np.uint8)
    return np.concatenate([*parts, factor.view(np.uint8)], axis=1)


def _runs_with_minima(blocks, levels):
    """The first 16 bytes of Q4_K and Q5_K blocks, and the integers (blocks, 8, 32) up to `levels`."""
    runs = blocks.reshape(-1, 8, 32)
    lowest = np.minimum(runs.min(axis=2), 0)
    factor, scales = _integers((runs.max(axis=2) - lowest) / levels, 63)
    factor_of_minima, minima = _integers(-lowest, 63)
    step = (factor.astype(np.float32) * scales)[..., None]
    above = runs + (factor_of_minima.astype(np.float32) * minima)[..., None]
    q = np.divide(above, step, out=np.zeros_like(runs), where=step != 0)
    scales, minima = scales.astype(np.uint8), minima.astype(np.uint8)
    six_bits = [
        scales[:, :4] | (scales[:, 4:] >> 4) << 6,
        minima[:, :4] | (minima[:, 4:] >> 4) << 6,
        scales[:, 4:] & 15 | (minima[:, 4:] & 15) << 4,
    ]
    head = [factor.view(np.uint8), factor_of_minima.view(np.uint8), *six_bits]
    return np.concatenate(head, axis=1), np.rint(q).clip(0, levels).astype(np.uint8)


def _integers(numbers, largest):
    """A float16 (blocks, 1) and integers up to `largest` that, multiplied, are close to `numbers` (blocks, n)."""
    factor = (np.abs(numbers).max(axis=1, keepdims=True) / largest).astype("<f2")
    wide = factor.astype(np.float32)
    quotients = np.divide(numbers, wide, out=np.zeros_like(numbers), where=wide > 0)
    return factor, np.rint(quotients).clip(-largest, largest)


def _nibbles(q):
    """Groups of integers (blocks, groups, n) below 16 as bytes (blocks, …): the first half of each group in low nibbles."""
    half = q.shape[2] // 2
    return (q[..., :half] | q[..., half:] << 4).reshape(len(q), -1)
