"""Reading one tensor from a byte source into a float32 array, a range of rows at a time."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from pyruntime.weights.quantized import dequantize

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from pyruntime.formats.source import ByteSource
    from pyruntime.formats.tensor_info import TensorInfo

# One read: large enough that the cost per read (a file opened, a message to a store) does not show, small enough that
# reading a 600 MB embedding needs no second 600 MB.
READ_BYTES = 4 * 1024 * 1024


async def read_float32(
    source: ByteSource,
    tensor: TensorInfo,
    out: NDArray[np.float32],
    on_read: Callable[[int], None] | None = None,
) -> None:
    """Fill `out`, a C-contiguous float32 array of the tensor's shape, with the tensor's values.

    Args:
        source: the file.
        tensor: which tensor, and where it lies.
        out: where to write.
        on_read: told the bytes just read, after each range.

    Raises:
        FormatError: the file is shorter than it says, or a value or scale is not finite; names the tensor.
    """
    rows = prod(tensor.shape[:-1])
    table = out.reshape(rows, -1)
    row_bytes = tensor.nbytes // max(rows, 1)
    step = max(1, READ_BYTES // max(row_bytes, 1))
    for start in range(0, rows, step):
        part = table[start : start + step]
        data = await source.read(tensor.offset + start * row_bytes, len(part) * row_bytes)
        dequantize(data, tensor.type, part.shape, file=source.name, tensor=tensor.name, out=part)
        if on_read:
            on_read(len(data))
