"""What it costs that the kernels keep some types in another form: `python -m benchmarks conversion`. Prints a table.

Weights drawn from a normal distribution are stored in each type, repacked by the native kernels, and compared with the
float32 values that the stored bytes mean.

    bits        of a weight, in the file and in memory
    own error   root mean square of what storing took away, as a share of the weights' own
    added       the same of what repacking took away
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np

from pyruntime.formats.tensor_types import TENSOR_TYPES
from pyruntime.model.kernel_abi import number
from pyruntime.model.kernel_layout import FORMAT_OF_TYPE, matrix_bytes
from pyruntime.model.native_host import best_library, load_library
from pyruntime.weights.quantized import dequantize
from tests.kernel_lab import unpack
from tests.stored_tensors import quantize
from tooling.console import ToolingError
from tooling.kernels import build_native

if TYPE_CHECKING:
    from ctypes import CDLL

    from numpy.typing import NDArray

_SHAPE = (512, 2048)
_ROADS = (*FORMAT_OF_TYPE.items(), ("Q4_K", "Q8"))  # the last is the one that was not taken


def added_error(library: CDLL, data: bytes, type_name: str, format_: str) -> float:
    """What repacking `data` into a format takes away from the weights, as a share of them."""
    exact = dequantize(data, type_name, _SHAPE)
    stored, panels = np.frombuffer(data, np.uint8), np.zeros(matrix_bytes(format_, *_SHAPE), np.uint8)
    numbers = number("SOURCE", type_name), number("FORMAT", format_)
    library.repack(*numbers, stored.ctypes.data, *_SHAPE, panels.ctypes.data)
    return _share(unpack(panels, format_, *_SHAPE) - exact, exact)


def _share(difference: NDArray[np.float32], weights: NDArray[np.float32]) -> float:
    return float(np.linalg.norm(difference) / np.linalg.norm(weights))


def main() -> int:
    """Measure and print; the exit code."""
    argparse.ArgumentParser(
        description="Prints what is lost where the kernels keep weights in another form."
    ).parse_args()
    path = best_library(build_native())
    if path is None:
        raise ToolingError("the native kernels do not load here")
    library = load_library(path)
    weights = np.random.default_rng(1).standard_normal(_SHAPE).astype(np.float32) * np.float32(0.02)
    print("| stored as | kept as | bits | own error | added |\n|---|---|---|---|---|")
    for type_name, format_ in _ROADS:
        data = quantize(weights, type_name)
        own = _share(dequantize(data, type_name, _SHAPE) - weights, weights)
        in_memory = 8 * matrix_bytes(format_, *_SHAPE) / weights.size
        bits = f"{8 * TENSOR_TYPES[type_name].block_bytes / TENSOR_TYPES[type_name].block_size:g} → {in_memory:g}"
        added = added_error(library, data, type_name, format_)
        print(f"| {type_name} | {format_} | {bits} | {own:.3%} | {added:.3%} |")
    return 0
