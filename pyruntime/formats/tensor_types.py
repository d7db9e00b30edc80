"""The types in which tensors are stored: how many values a block holds and how many bytes it takes.

One row per supported type. What the bytes of a block mean is the business of whoever dequantises them.
Numbers and layouts: the GGML types of the GGUF specification.
"""

from __future__ import annotations

from typing import NamedTuple


class TensorType(NamedTuple):
    """One storage type: `number` in a GGUF file, values per block, bytes per block."""

    number: int
    block_size: int
    block_bytes: int


TENSOR_TYPES: dict[str, TensorType] = {
    "F32": TensorType(0, 1, 4),
    "F16": TensorType(1, 1, 2),
    "BF16": TensorType(30, 1, 2),
    "Q8_0": TensorType(8, 32, 34),
    "Q4_0": TensorType(2, 32, 18),
    "Q4_1": TensorType(3, 32, 20),
    "Q5_0": TensorType(6, 32, 22),
    "Q5_1": TensorType(7, 32, 24),
    "Q4_K": TensorType(12, 256, 144),
    "Q5_K": TensorType(13, 256, 176),
    "Q6_K": TensorType(14, 256, 210),
}

# Types that exist and are not supported, so that a refusal can say their name.
OTHER_TYPE_NAMES: dict[int, str] = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
