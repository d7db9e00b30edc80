"""The angles of rotary position embeddings.

Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def frequencies(head_size: int, theta: float) -> NDArray[np.float32]:
    """Radians per position of each pair of values in a head: `1 / theta^(2j / head_size)` for pair j, (head_size / 2,).

    Exponent, power, quotient and later the angle are each rounded to float32, because the reference (transformers)
    rounds them. Far into a long context this moves the angle by more than all other float32 errors together, so a "more
    exact" frequency would be the less faithful one. The power itself is taken in float64: float32 powers differ by
    platform in their last bits.
    """
    exponents = np.arange(0, head_size, 2, dtype=np.float32) / np.float32(head_size)
    powers = np.float64(theta) ** exponents.astype(np.float64)
    return np.float32(1.0) / powers.astype(np.float32)


def rotations(frequencies: NDArray[np.float32], start: int, n: int) -> NDArray[np.complex64]:
    """`cos + i·sin` of the angle of every pair at positions start … start + n - 1: complex64 (n, head_size / 2)."""
    angles = np.arange(start, start + n, dtype=np.float32)[:, None] * frequencies
    turned = np.empty(angles.shape, np.complex64)
    np.cos(angles, out=turned.real)
    np.sin(angles, out=turned.imag)
    return turned
