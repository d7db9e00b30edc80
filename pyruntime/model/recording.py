"""Taking down a forward pass: the operations of `ops.py` on handles that stand for values, as a list of steps.

Shapes are checked while recording. `Recording.steps` is then simplified: a step that only turns its neighbour's floats
into integers, or only adds to its result, becomes part of it. Where values lie in memory is not known here; that is
`program.py`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn

from pyruntime.errors import compose
from pyruntime.model.kernel_abi import number

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyruntime.model.config import ModelConfig


@dataclass(frozen=True)
class Weight:
    """A weight in kernel memory, as a handle.

    Attributes:
        name: for errors.
        format: a name of the ABI's FORMAT; F32 for vectors.
        rows: of a matrix; 1 for vectors.
        columns: values of a row.
        place: where it lies.
    """

    name: str
    format: str
    rows: int
    columns: int
    place: int


@dataclass(frozen=True, eq=False)
class Value:
    """Rows that a step computes, as a handle.

    Attributes:
        width: values of a row.
        row: how a row lies in memory, a name of the ABI's ROW.
        output: there are as many rows as logits are wanted, not as many as the run has ids.
        whole: of a view of the last rows, the value with all of them.
    """

    width: int
    row: str = "FLOAT"
    output: bool = False
    whole: Value | None = None

    @property
    def stored(self) -> Value:
        """The value that has memory."""
        return self.whole or self


Handle = Weight | Value


@dataclass(frozen=True, eq=False)
class Step:
    """One operation before it has places.

    Attributes:
        name: of the ABI's operation.
        result: what it computes; None for one that only fills the cache.
        sources: field → value that is read.
        words: field → number that is known already.
        reads, writes: things other than values, by name, that decide the order.
    """

    name: str
    result: Value | None
    sources: dict[str, Value]
    words: dict[str, int]
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Tables:
    """What steps refer to beside values and weights.

    Attributes:
        cache_words: layer → the fields of the cache.
        rotations: place of the rotation table.
        partials: place for attention's partial results.
        peaks: place for the peaks of the logits.
    """

    cache_words: Callable[[int], dict[str, int]]
    rotations: int
    partials: int
    peaks: int


@dataclass
class Recorder:
    """Implements `Ops` by taking notes.

    Args:
        config: the model's shape.
        tables: what steps refer to.
        row_for: weight format → the form its products take their rows in.
    """

    config: ModelConfig
    tables: Tables
    row_for: Callable[[str], str]
    steps: list[Step] = field(default_factory=list)
    _integers: dict[tuple[Value, str], Value] = field(default_factory=dict)

    def embed(self, table: Handle) -> Handle:
        """One step."""
        matrix = _weight(table)
        words = {"table": matrix.place, "format": number("FORMAT", matrix.format), "width": matrix.columns}
        return self._step("EMBED", Value(matrix.columns), {}, words)

    def rms_norm(self, x: Handle, weight: Handle) -> Handle:
        """One step, over heads where the weight is narrower than the rows."""
        rows, vector = _value(x), _weight(weight)
        if rows.width % vector.columns:
            _refuse(f"{vector.name} of {vector.columns} values cannot normalise rows of {rows.width}")
        epsilon = struct.unpack("<i", struct.pack("<f", self.config.norm_eps))[0]
        words = {"weight": vector.place, "width": vector.columns, "runs": rows.width // vector.columns}
        return self._step("NORM", Value(rows.width, output=rows.output), {"src": rows}, words | {"epsilon": epsilon})

    def linear(self, x: Handle, weight: Handle, bias: Handle | None = None) -> Handle:
        """A step, and before it one that makes integers of `x` unless they are there."""
        rows, matrix = _value(x), _weight(weight)
        vector = None if bias is None else _weight(bias)
        if rows.width != matrix.columns:
            _refuse(f"{matrix.name} takes {matrix.columns} values and is given {rows.width}")
        if vector and vector.columns != matrix.rows:
            _refuse(f"{vector.name} has {vector.columns} values for the {matrix.rows} rows of {matrix.name}")
        words = {
            "weight": matrix.place,
            "format": number("FORMAT", matrix.format),
            "inputs": matrix.columns,
            "outputs": matrix.rows,
            "bias": vector.place if vector else -1,
            "residual": -1,
            "peaks": self.tables.peaks if rows.output and matrix.rows == self.config.vocab_size else -1,
        }
        source = self._as_integers(rows, self.row_for(matrix.format))
        return self._step("LINEAR", Value(matrix.rows, output=rows.output), {"src": source}, words)

    def rope(self, x: Handle) -> Handle:
        """One step."""
        rows, size = _value(x), self.config.head_size
        if rows.width % size or rows.output:
            _refuse(f"rows of {rows.width} values cannot be rotated in heads of {size}")
        words = {
            "heads": rows.width // size,
            "head_size": size,
            "layout": number("ROPE", self.config.rope_layout.upper()),
            "table": self.tables.rotations,
        }
        return self._step("ROPE", Value(rows.width), {"src": rows}, words)

    def attention(self, layer: int, q: Handle, k: Handle, v: Handle) -> Handle:
        """Three steps: into the cache, over it, and the parts put together."""
        queries, keys, values = _value(q), _value(k), _value(v)
        config = self.config
        if queries.width != config.n_heads * config.head_size or keys.width != config.n_kv_heads * config.head_size:
            _refuse(f"layer {layer}: {queries.width} and {keys.width} are not the widths of queries and keys")
        if keys.width != values.width or queries.output or keys.output or values.output:
            _refuse(f"layer {layer}: keys and values are not alike")
        cache, name = self.tables.cache_words(layer), frozenset({f"cache {layer}"})
        parts = frozenset({"partials"})
        self.steps.append(Step("STORE", None, {"key_rows": keys, "value_rows": values}, cache, writes=name))
        result, sources = Value(queries.width), {"query_rows": queries}
        words = cache | {"partials": self.tables.partials, "group": config.n_heads // config.n_kv_heads}
        self.steps.append(Step("ATTEND", result, sources, words, reads=name, writes=parts))
        self.steps.append(Step("MERGE", result, sources, words, reads=name | parts))
        return result

    def silu_mul(self, gate: Handle, up: Handle) -> Handle:
        """One step."""
        return self._pair("SILU_MUL", {"gate": _value(gate), "up": _value(up)})

    def add(self, x: Handle, y: Handle) -> Handle:
        """One step."""
        return self._pair("ADD", {"x": _value(x), "y": _value(y)})

    def output_rows(self, x: Handle) -> Handle:
        """No step: a view that later steps read."""
        rows = _value(x)
        return Value(rows.width, rows.row, output=True, whole=rows)

    def _pair(self, name: str, sources: dict[str, Value]) -> Value:
        first, second = sources.values()
        if first.width != second.width or first.output != second.output or first.whole or second.whole:
            _refuse(f"{name}: rows of {first.width} and {second.width} values are not alike")
        return self._step(name, Value(first.width, output=first.output), sources, {"width": first.width})

    def _as_integers(self, rows: Value, form: str) -> Value:
        key = (rows, form)
        if key not in self._integers:
            result = Value(rows.width, form, output=rows.output)
            self._integers[key] = self._step("QUANTIZE", result, {"src": rows}, {"width": rows.width})
        return self._integers[key]

    def _step(self, name: str, result: Value, sources: dict[str, Value], words: dict[str, int]) -> Value:
        self.steps.append(Step(name, result, sources, words))
        return result


def simplified(steps: list[Step]) -> list[Step]:
    """The same computation in fewer steps."""
    return _with_residuals(_with_integer_results(steps))


def _readers(steps: list[Step], value: Value) -> list[Step]:
    """The steps that read a value, whole or a view of it."""
    return [step for step in steps if any(source.stored is value for source in step.sources.values())]


def _with_integer_results(steps: list[Step]) -> list[Step]:
    """NORM and SILU_MUL write the integers themselves when nobody reads their floats."""
    kept = list(steps)
    for step in steps:
        if step.name != "QUANTIZE" or step.sources["src"].whole:
            continue
        value = step.sources["src"]
        made_by = next((s for s in kept if s.result is value), None)
        if made_by is None or made_by.words.get("runs", 1) > 1 or made_by.name not in {"NORM", "SILU_MUL"}:
            continue
        if _readers(kept, value) == [step]:
            kept[kept.index(made_by)] = replace(made_by, result=step.result)
            kept.remove(step)
    return kept


def _with_residuals(steps: list[Step]) -> list[Step]:
    """LINEAR adds the rows itself when its result is read only by the ADD."""
    kept = list(steps)
    for step in steps:
        if step.name != "ADD":
            continue
        x, y = step.sources["x"], step.sources["y"]
        made_by = next((s for s in kept if s.result is y), None)
        if made_by is None or made_by.name != "LINEAR" or "residual" in made_by.sources or _readers(kept, y) != [step]:
            continue
        if not any(s.result is x for s in kept[: kept.index(made_by)]):
            continue  # the other summand is not there yet when the product is made
        words = {name: word for name, word in made_by.words.items() if name != "residual"}
        sources = made_by.sources | {"residual": x}
        kept[kept.index(made_by)] = replace(made_by, result=step.result, sources=sources, words=words)
        kept.remove(step)
    return kept


def _weight(handle: Handle) -> Weight:
    if not isinstance(handle, Weight):
        _refuse("a computed value stands where a weight belongs")
    return handle


def _value(handle: Handle) -> Value:
    if not isinstance(handle, Value):
        _refuse(f"{handle.name} stands where a computed value belongs")
    return handle


def _refuse(problem: str) -> NoReturn:
    raise ValueError(compose("forward pass", problem))
