"""From recorded steps to the words the kernels run: places for values, and where threads must meet.

Steps that do not need each other's results stand side by side, whatever order the model file computes them in: the
program is a list of levels, and threads meet (SYNC) only between levels. A value has memory from the level that computes
it to the last that reads it; the buffers of values that are never alive together overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyruntime.model.kernel_abi import (
    FLAGS,
    MAX_TOKENS,
    OPERATION_WORDS,
    OPERATIONS,
    UNIT,
    number,
    operation_number,
)
from pyruntime.model.kernel_layout import round_up, row_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pyruntime.model.recording import Step, Value

# Rows of logits of one run. More would only make the buffer for them larger: 152k logits are 0.6 MB.
MAX_OUTPUT = 8

_FIELDS = {operation.name: operation.fields for operation in OPERATIONS}


@dataclass(frozen=True)
class Program:
    """A forward pass as the kernels run it.

    Attributes:
        words: (operations, OPERATION_WORDS) int32.
        buffer_bytes: memory of all values together, from place `start` on.
        logits: place of the last step's rows.
        logits_stride: bytes from one row of logits to the next.
    """

    words: NDArray[np.int32]
    buffer_bytes: int
    logits: int
    logits_stride: int


def value_bytes(value: Value) -> int:
    """Bytes of a value in the largest run."""
    return round_up(row_bytes(value.row, value.width) * (MAX_OUTPUT if value.output else MAX_TOKENS), UNIT)


def compile_steps(steps: Sequence[Step], start: int) -> Program:
    """The program of `steps`, with values in memory from place `start` on."""
    levels = in_levels(steps)
    places, buffer_bytes = _places(levels, start)
    encoded = [
        _encode(step, places, sync=n > 0 and step is level[0]) for n, level in enumerate(levels) for step in level
    ]
    words = np.zeros((len(encoded), OPERATION_WORDS), np.int32)
    for row, operation in zip(words, encoded, strict=True):
        row[: len(operation)] = operation
    result = steps[-1].result
    assert result is not None  # noqa: S101 - a forward pass ends in logits
    return Program(words, buffer_bytes, places[result], row_bytes(result.row, result.width))


def in_levels(steps: Sequence[Step]) -> list[list[Step]]:
    """The steps in groups: none needs the result of another in its group, all need one of the group before."""
    level_of: dict[Step, int] = {}
    for n, step in enumerate(steps):
        level_of[step] = max((level_of[other] + 1 for other in steps[:n] if _must_follow(step, other)), default=0)
    levels: list[list[Step]] = [[] for _ in range(max(level_of.values()) + 1)]
    for step, level in level_of.items():
        levels[level].append(step)
    return levels


def _must_follow(step: Step, earlier: Step) -> bool:
    uses_result = any(source.stored is earlier.result for source in step.sources.values())
    same_result = step.result is not None and step.result is earlier.result
    return bool(
        uses_result or same_result or step.reads & earlier.writes or step.writes & (earlier.reads | earlier.writes)
    )


def _places(levels: Sequence[Sequence[Step]], start: int) -> tuple[dict[Value, int], int]:
    """Value → place, and the bytes that are needed: each takes the first gap between values alive in its level."""
    last_use: dict[Value, int] = {}
    for n, level in enumerate(levels):
        for step in level:
            for value in (*(source.stored for source in step.sources.values()), *_result(step)):
                last_use[value] = n
    places: dict[Value, int] = {}
    alive: list[Value] = []
    end = start
    for n, level in enumerate(levels):
        for value in (value for step in level for value in _result(step) if value not in places):
            size = value_bytes(value) // UNIT
            places[value] = _first_gap([(places[v], value_bytes(v) // UNIT) for v in alive], size, start)
            end = max(end, places[value] + size)
            alive.append(value)
        alive = [value for value in alive if last_use[value] > n]
    return places, (end - start) * UNIT


def _result(step: Step) -> tuple[Value, ...]:
    return () if step.result is None else (step.result,)


def _first_gap(taken: list[tuple[int, int]], size: int, start: int) -> int:
    for place, length in sorted(taken):
        if start + size <= place:
            break
        start = max(start, place + length)
    return start


def _encode(step: Step, places: dict[Value, int], *, sync: bool) -> list[int]:
    flags = FLAGS["SYNC"][0] * sync
    if step.result and step.result.output:
        flags |= FLAGS["OUTPUT_ROWS"][0]
    if any(source.whole for source in step.sources.values()):
        flags |= FLAGS["TAIL"][0]
    known = dict(step.words)
    for name, source in step.sources.items():
        known[name] = places[source.stored]
        known[f"{name}_row"] = number("ROW", source.row)
    if step.result:
        known["dst"] = places[step.result]
        known["dst_row"] = number("ROW", step.result.row)
    return [operation_number(step.name), flags, *(known[name] for name in _FIELDS[step.name])]
