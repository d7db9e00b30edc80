"""The three matrix products of a forward pass in numpy, in the form that is fastest where the code runs.

Natively `@` is BLAS. In the browser numpy has no BLAS and `@` is a plain loop, while `einsum` sums products with
WebAssembly SIMD, provided that both operands run over neighbouring values. Measured with numpy 2.4.3 in Pyodide
314.0.3, one core of an AMD EPYC (Zen 4), in GFLOP/s:

    one row of x times weight (1536, 576)      @ 4.4   einsum 7.8   einsum on a transposed copy 6.5   x @ copy 1.5
    64 rows of x times the same                @ 4.4   einsum 7.7   einsum on a transposed copy 6.4   x @ copy 1.8
    scores: 9 queries, 2048 positions of 64    @ 5.6   einsum 6.2 with positions neighbouring, 4.8 with head values so
    mix: the same sizes                        @ 3.9   einsum 7.6 with positions neighbouring, 4.6 with head values so

Tiles of rows or columns change nothing: the products are bound by arithmetic, in decoding by memory. Hence weights
are (outputs, inputs), as stored in model files, and cached keys and values (heads, head_size, positions).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable

Array = NDArray[np.float32]


class Products(NamedTuple):
    """One way to compute the products.

    Attributes:
        linear: x (n, inputs), weight (outputs, inputs) → (n, outputs).
        scores: queries (heads, rows, head_size), keys (heads, head_size, positions) → (heads, rows, positions).
        mix: weights (heads, rows, positions), values (heads, head_size, positions) → (heads, rows, head_size).
    """

    linear: Callable[[Array, Array], Array]
    scores: Callable[[Array, Array], Array]
    mix: Callable[[Array, Array], Array]


def _einsum(subscripts: str, shape: tuple[int, ...], x: Array, y: Array) -> Array:
    # `out` is given because einsum is free to choose another memory order for an array of its own.
    out = np.empty(shape, np.float32)
    np.einsum(subscripts, x, y, out=out)
    return out


BLAS = Products(
    linear=lambda x, weight: x @ weight.T,
    scores=lambda queries, keys: queries @ keys,
    mix=lambda weights, values: weights @ values.transpose(0, 2, 1),
)
EINSUM = Products(
    linear=lambda x, weight: _einsum("kj,ij->ki", (len(x), len(weight)), x, weight),
    scores=lambda queries, keys: _einsum("hqd,hdp->hqp", (*queries.shape[:2], keys.shape[2]), queries, keys),
    mix=lambda weights, values: _einsum("hqp,hdp->hqd", (*weights.shape[:2], values.shape[1]), weights, values),
)


def products_for(platform: str = sys.platform) -> Products:
    """The fastest form on `platform`, a value of `sys.platform`."""
    return EINSUM if platform == "emscripten" else BLAS
