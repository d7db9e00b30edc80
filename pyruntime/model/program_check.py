"""Whether a program stays inside its arena: every range it may touch, from its words alone.

The kernels trust their program; this is what makes that safe. It knows nothing of how a program was made, so a mistake
there is found here, before anything runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyruntime.model.kernel_abi import CHOICES, FLAGS, MAX_HEAD, MAX_TOKENS, NOTHING, OPERATIONS, UNIT
from pyruntime.model.kernel_layout import matrix_bytes, partials_bytes, peaks_bytes, round_up, row_bytes
from pyruntime.model.program import MAX_OUTPUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

_NAMES = {choice.prefix: choice.names for choice in CHOICES}
_ALL_FLAGS = sum(value for value, _ in FLAGS.values())
# What each of these fields numbers.
_CHOICE_OF_FIELD = {"dst_row": "ROW", "src_row": "ROW", "format": "FORMAT", "kv": "KV", "layout": "ROPE"}
_COUNTS = ("width", "runs", "inputs", "outputs", "heads", "head_size", "kv_heads", "capacity", "group")


class ProgramError(ValueError):
    """A program would touch memory that is not its own."""


class Range(NamedTuple):
    """Bytes that an operation may touch."""

    field: str
    place: int
    n_bytes: int


def check_program(
    words: NDArray[np.int32], *, arena_bytes: int, writable_from: int, vocab_size: int, context: int
) -> None:
    """Raise ProgramError unless every operation is known and stays in its bounds.

    Args:
        words: (operations, OPERATION_WORDS).
        arena_bytes: size of the arena.
        writable_from: place from which on operations may write; what lies before is only read.
        vocab_size: ids are below it.
        context: positions of a run are below it.
    """
    for n, row in enumerate(words.tolist()):
        if not 0 <= row[0] < len(OPERATIONS) or row[1] & ~_ALL_FLAGS:
            raise ProgramError(f"operation {n}: number {row[0]} with flags {row[1]} is none")
        operation = OPERATIONS[row[0]]
        fields = dict(zip(operation.fields, row[2:], strict=False))
        where = f"operation {n}, {operation.name}"
        _check_numbers(where, fields, context)
        output = bool(row[1] & FLAGS["OUTPUT_ROWS"][0])
        tail = bool(row[1] & FLAGS["TAIL"][0])
        for write, found in _ranges(operation.name, fields, vocab_size, context, output=output, tail=tail):
            lowest = writable_from if write else 0
            if found.place < lowest or found.place * UNIT + found.n_bytes > arena_bytes:
                raise ProgramError(
                    f"{where}: {found.field} at {found.place} with {found.n_bytes} bytes is out of bounds"
                )


def _check_numbers(where: str, fields: Mapping[str, int], context: int) -> None:
    for name, value in fields.items():
        choice = _CHOICE_OF_FIELD.get(name)
        if choice and not 0 <= value < len(_NAMES[choice]):
            raise ProgramError(f"{where}: {name} is {value}")
        if name in _COUNTS and value < 1:
            raise ProgramError(f"{where}: {name} is {value}")
    if fields.get("head_size", 2) > MAX_HEAD or fields.get("capacity", context) < context:
        raise ProgramError(f"{where}: a head of {fields['head_size']} values, {fields.get('capacity')} positions")
    if "format" in fields and _NAMES["FORMAT"][fields["format"]] == "F32":
        raise ProgramError(f"{where}: a matrix of floats")


def _ranges(
    name: str, fields: Mapping[str, int], vocab_size: int, context: int, *, output: bool, tail: bool
) -> Iterator[tuple[bool, Range]]:
    """(is written, range) of everything an operation touches in the largest run."""
    rows = MAX_OUTPUT if output else MAX_TOKENS
    source_rows = MAX_TOKENS if tail else rows
    width = fields.get("outputs") or fields.get("width", 0) * fields.get("runs", 1)
    if "heads" in fields:
        width = fields["heads"] * fields["head_size"]
    if "keys" in fields:
        yield from _cache_ranges(name, fields)
        return
    yield True, _rows("dst", fields, width, rows)
    for field in {"src", "gate", "up", "x", "y"} & fields.keys():
        yield False, _rows(field, fields, fields.get("inputs", width), source_rows)
    if name == "NORM":
        yield False, _rows("weight", fields, fields["width"], 1)
    elif name == "EMBED":
        yield False, _matrix("table", fields, vocab_size, width)
    elif name == "ROPE":
        yield False, Range("table", fields["table"], 4 * context * fields["head_size"])
    elif name == "LINEAR":
        yield from _linear_ranges(fields, width, rows)


def _linear_ranges(fields: Mapping[str, int], width: int, rows: int) -> Iterator[tuple[bool, Range]]:
    """What LINEAR touches beside the rows it reads and writes."""
    yield False, _matrix("weight", fields, width, fields["inputs"])
    if fields["bias"] != NOTHING:
        yield False, _rows("bias", fields, width, 1)
    if fields["residual"] != NOTHING:
        yield False, _rows("residual", fields, width, rows)
    if fields["peaks"] != NOTHING:
        yield True, Range("peaks", fields["peaks"], peaks_bytes(width, rows))


def _rows(field: str, fields: Mapping[str, int], width: int, n: int) -> Range:
    kind = _NAMES["ROW"][fields.get(f"{field}_row", 0)]
    return Range(field, fields[field], n * row_bytes(kind, width))


def _matrix(field: str, fields: Mapping[str, int], rows: int, columns: int) -> Range:
    return Range(field, fields[field], matrix_bytes(_NAMES["FORMAT"][fields["format"]], rows, columns))


def _cache_ranges(name: str, fields: Mapping[str, int]) -> Iterator[tuple[bool, Range]]:
    heads, size, capacity = fields["kv_heads"], fields["head_size"], fields["capacity"]
    values = heads * capacity * round_up(size, 8) * (2 if _NAMES["KV"][fields["kv"]] == "INT16" else 1)
    for field in ("keys", "values"):
        yield name == "STORE", Range(field, fields[field], values)
        yield name == "STORE", Range(field[:-1] + "_scales", fields[field[:-1] + "_scales"], 4 * heads * capacity)
    if name == "STORE":
        for field in ("key_rows", "value_rows"):
            yield False, _rows(field, fields, heads * size, MAX_TOKENS)
        return
    group = fields["group"]
    parts = partials_bytes(heads * group, heads, size, capacity)
    yield True, Range("partials", fields["partials"], parts)
    for field in ("query_rows", "dst"):
        yield field == "dst", _rows(field, fields, heads * group * size, MAX_TOKENS)
