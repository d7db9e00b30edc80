"""A model's weights in kernel memory: where each goes, and how it gets there from a file, a range of rows at a time."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyruntime.errors import FormatError
from pyruntime.model.kernel_abi import PANEL_ROWS, number
from pyruntime.model.kernel_layout import FORMAT_OF_TYPE, Arena, matrix_bytes, row_bytes
from pyruntime.model.recording import Weight
from pyruntime.weights.loading import READ_BYTES, read_float32

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyruntime.formats.source import ByteSource
    from pyruntime.formats.tensor_info import TensorInfo
    from pyruntime.model.kernel_host import KernelHost

_VERDICTS = {
    number("VERDICT", "NOT_FINITE"): ("a scale or value is not finite", "finite numbers"),
    number("VERDICT", "TOO_LARGE"): ("a value is too large for 8-bit weights", "at most 8 million"),
    number("VERDICT", "SCALE_TOO_LARGE"): ("a scale or minimum is too large for 4-bit weights", "at most 65,504"),
}


class RowRange(NamedTuple):
    """Neighbouring rows of a stored matrix, and where their panels go.

    Attributes:
        offset: of the first byte in the file.
        n_bytes: of the range.
        rows: how many; the first begins a panel.
        columns: values of a row.
        source: number of the stored type in the ABI.
        format: number of the format in the ABI.
        place: of the panels, in units.
        panel_offset: bytes from there to the first panel of the range.
    """

    offset: int
    n_bytes: int
    rows: int
    columns: int
    source: int
    format: int
    place: int
    panel_offset: int


def place_weights(stored: Mapping[str, TensorInfo], arena: Arena) -> dict[str, Weight]:
    """Our name → the weight's handle, with room taken from `arena` in the order of the files.

    A matrix becomes panels; a vector a row of floats, zero up to whole blocks.
    """
    handles = {}
    for name, tensor in sorted(stored.items(), key=lambda item: item[1].place):
        if len(tensor.shape) == 1:
            width = tensor.shape[0]
            handles[name] = Weight(name, "F32", 1, width, arena.take(row_bytes("FLOAT", width)))
        else:
            rows, columns = prod(tensor.shape[:-1]), tensor.shape[-1]
            format_ = FORMAT_OF_TYPE[tensor.type]
            handles[name] = Weight(name, format_, rows, columns, arena.take(matrix_bytes(format_, rows, columns)))
    return handles


def in_8_bits(stored: Mapping[str, TensorInfo]) -> tuple[str, ...]:
    """The stored types of the matrices that become 8-bit integers and are none, sorted."""
    types = {tensor.type for tensor in stored.values() if len(tensor.shape) > 1}
    return tuple(sorted(type_ for type_ in types if FORMAT_OF_TYPE[type_] == "Q8" and type_ != "Q8_0"))


def row_ranges(tensor: TensorInfo, weight: Weight, limit: int = READ_BYTES) -> list[RowRange]:
    """The ranges in which a matrix is read: whole panels of at most `limit` bytes, or one panel if that is larger."""
    row = tensor.nbytes // weight.rows
    step = max(1, limit // (PANEL_ROWS * row)) * PANEL_ROWS
    ranges = []
    for start in range(0, weight.rows, step):
        rows = min(step, weight.rows - start)
        ranges.append(
            RowRange(
                offset=tensor.offset + start * row,
                n_bytes=rows * row,
                rows=rows,
                columns=weight.columns,
                source=number("SOURCE", tensor.type),
                format=number("FORMAT", weight.format),
                place=weight.place,
                panel_offset=matrix_bytes(weight.format, start, weight.columns),
            )
        )
    return ranges


def largest_range(stored: Mapping[str, TensorInfo]) -> int:
    """Bytes of the largest range that `load_weights` reads."""
    panels = [PANEL_ROWS * t.nbytes // prod(t.shape[:-1]) for t in stored.values() if len(t.shape) > 1]
    return max(READ_BYTES, *panels)


async def load_weights(
    host: KernelHost,
    sources: Mapping[str, ByteSource],
    stored: Mapping[str, TensorInfo],
    handles: Mapping[str, Weight],
    staging: int,
    on_read: Callable[[int], None],
) -> None:
    """Fill the places of all weights from the files, each from its beginning to its end.

    Args:
        host: whose arena it is.
        sources: file name → its bytes.
        stored: our name → the file's tensor.
        handles: our name → its place.
        staging: place with room for `largest_range` bytes.
        on_read: told the bytes just read, after each range.

    Raises:
        FormatError: a file is shorter than it says, or a value is not finite or too large; names the tensor.
    """
    for name, tensor in sorted(stored.items(), key=lambda item: item[1].place):
        weight, source = handles[name], sources[tensor.file]
        if weight.format == "F32":
            vector = np.zeros(row_bytes("FLOAT", weight.columns) // 4, np.float32)
            await read_float32(source, tensor, vector[: weight.columns], on_read)
            host.write(weight.place, vector)
            continue
        for rows in row_ranges(tensor, weight):
            verdict = await host.load_rows(source, rows, staging)
            if verdict:
                problem, allowed = _VERDICTS[verdict]
                raise FormatError(source.name, tensor.name, problem, allowed=allowed)
            on_read(rows.n_bytes)
