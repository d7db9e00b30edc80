"""The one table of what Python and the C kernels agree on: formats, operations, the shared control words.

`kernels/abi.h` is generated from it (`python -m tooling.kernels abi`), and a test compares the two. Nothing here computes;
sizes that follow from the table are in `kernel_layout.py`.

- All places in the arena are counted in units of `UNIT` bytes, so 32-bit numbers reach 128 GB.
- An operation is `OPERATION_WORDS` 32-bit words: its number, its flags, then the fields below in order.
- `run` returns one of `OUTCOMES`.
"""

from __future__ import annotations

from typing import NamedTuple

VERSION = 4
UNIT = 64  # bytes; a cache line, so that no two buffers share one
OPERATION_WORDS = 16
NOTHING = -1  # in a field that names a place: there is none

BLOCK = 32  # values that share a scale
PANEL_ROWS = 16  # rows of a weight matrix whose blocks lie side by side
KEY_PANEL = 8  # cached positions whose keys lie side by side
SPAN = 256  # positions that attention treats at a time
ROW_TILE = 4  # query rows that attention treats at a time
MAX_HEAD = 256  # values of a head
MAX_TOKENS = 64  # tokens of one run
MAX_THREADS = 32


class Choice(NamedTuple):
    """A set of numbered names."""

    prefix: str
    meaning: str
    names: tuple[str, ...]


CHOICES = (
    Choice("FORMAT", "how weights lie in memory", ("Q8", "Q4", "Q4_MIN", "F32")),
    Choice(
        "SOURCE",
        "how a model file stores a tensor",
        ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"),
    ),
    Choice("VERDICT", "what repacking found", ("FINE", "NOT_FINITE", "TOO_LARGE", "SCALE_TOO_LARGE")),
    Choice("ROW", "how the rows of a run lie in memory", ("FLOAT", "INT8", "INT16", "SPLIT")),
    Choice("KV", "how keys and values are cached", ("INT16", "INT8")),
    Choice("ROPE", "which values of a head rotate together", ("HALF", "INTERLEAVED")),
    Choice("OUTCOME", "how a run ended", ("DONE", "STOPPED")),
)


class Operation(NamedTuple):
    """One operation: its fields are words of the program, in this order after number and flags."""

    name: str
    meaning: str
    fields: tuple[str, ...]


FLAGS = {
    "SYNC": (1, "all operations before it are finished first"),
    "OUTPUT_ROWS": (2, "it runs over the rows whose logits are wanted, not over all"),
    "TAIL": (4, "its source has all rows of the run; the last ones are read"),
}

_CACHE = ("keys", "key_scales", "values", "value_scales", "kv", "kv_heads", "head_size", "capacity")

OPERATIONS = (
    Operation("EMBED", "rows of a table for the run's ids", ("dst", "table", "format", "width")),
    Operation(
        "NORM",
        "each run of `width` values divided by its root mean square, times a weight",
        ("dst", "dst_row", "src", "weight", "width", "runs", "epsilon"),
    ),
    Operation("QUANTIZE", "float rows as integers", ("dst", "dst_row", "src", "width")),
    Operation("SILU_MUL", "silu(gate) * up", ("dst", "dst_row", "gate", "up", "width")),
    Operation("ADD", "x + y", ("dst", "x", "y", "width")),
    Operation(
        "LINEAR",
        "rows times a weight matrix, plus bias, plus residual rows; and the peaks of the result",
        ("dst", "weight", "format", "src", "src_row", "inputs", "outputs", "bias", "residual", "peaks"),
    ),
    Operation("ROPE", "rotation by position", ("dst", "src", "heads", "head_size", "layout", "table")),
    Operation("STORE", "keys and values into the cache", ("key_rows", "value_rows", *_CACHE)),
    Operation("ATTEND", "attention over the cache", ("dst", "query_rows", "partials", "group", *_CACHE)),
    Operation("MERGE", "the parts that ATTEND left, put together", ("dst", "query_rows", "partials", "group", *_CACHE)),
)

# The control block at the start of the arena, a list of cache lines; words that different threads write never share one.
CONTROL_LINES = (
    (("stop", "set to 1 by anyone to end the run at the next SYNC"),),
    (
        ("job", "the run: its number in the upper 24 bits, threads that take part in the lower 8; -1 ends the helpers"),
        ("job_sleepers", "threads that sleep until it changes"),
    ),
    (
        ("finished", "tiles of the run that are done; with the next word a 64-bit number"),
        ("finished_job", "the run they belong to"),
        ("finished_sleepers", "threads that sleep until it changes"),
    ),
    (
        ("program", "place of the operations"),
        ("n_operations", "how many"),
        ("claims", "place of one 64-bit number per operation: the run, and the next tile to be taken"),
        ("spin", "how often a waiting thread looks before it sleeps"),
    ),
    (
        ("n_tokens", "tokens of this run"),
        ("position", "of the first of them"),
        ("n_output", "rows whose logits are wanted"),
    ),
)


def number(choice: str, name: str) -> int:
    """The number of a name: `number("FORMAT", "Q8")`."""
    return next(c for c in CHOICES if c.prefix == choice).names.index(name)


def operation_number(name: str) -> int:
    """The number of an operation."""
    return [operation.name for operation in OPERATIONS].index(name)


def control_word(name: str) -> int:
    """The index, in 32-bit words from the start of the arena, of a word of the control block."""
    for line, words in enumerate(CONTROL_LINES):
        for place, (word, _) in enumerate(words):
            if word == name:
                return line * (UNIT // 4) + place
    raise KeyError(name)


IDS_WORD = len(CONTROL_LINES) * (UNIT // 4)  # where the run's token ids begin, in words
CONTROL_BYTES = 4 * (IDS_WORD + MAX_TOKENS)


def header() -> str:
    """The text of `kernels/abi.h`."""
    lines = [
        "// Generated from pyruntime/model/kernel_abi.py by `python -m tooling.kernels abi`; do not edit.",
        "// Places are counted from the start of the arena, in units of UNIT bytes.",
        "#pragma once",
        "",
        "#include <stdint.h>",
        "",
        "enum {",
    ]
    constants = {
        "ABI_VERSION": VERSION, "UNIT": UNIT, "OPERATION_WORDS": OPERATION_WORDS, "NOTHING": NOTHING, "BLOCK": BLOCK,
        "PANEL_ROWS": PANEL_ROWS, "KEY_PANEL": KEY_PANEL, "SPAN": SPAN, "ROW_TILE": ROW_TILE, "MAX_HEAD": MAX_HEAD,
        "MAX_TOKENS": MAX_TOKENS, "MAX_THREADS": MAX_THREADS,
    }  # fmt: skip
    lines += [f"  {name} = {value}," for name, value in constants.items()]
    lines += [f"  FLAG_{name} = {value},  // {meaning}" for name, (value, meaning) in FLAGS.items()]
    lines += ["};"]
    for choice in CHOICES:
        lines += ["", f"// {choice.meaning}", f"enum {{ {', '.join(f'{choice.prefix}_{n}' for n in choice.names)} }};"]
    lines += ["", "enum { " + ", ".join(f"OP_{operation.name}" for operation in OPERATIONS) + " };"]
    for operation in OPERATIONS:
        lines += ["", f"// {operation.meaning}", "typedef struct {", "  int32_t op, flags;"]
        lines += [f"  int32_t {', '.join(operation.fields)};", f"}} {_struct(operation.name)};"]
    lines += ["", "// The start of the arena.", "typedef struct {"]
    for n, words in enumerate(CONTROL_LINES):
        lines += [f"  int32_t {name};  // {meaning}" for name, meaning in words]
        lines += [f"  int32_t pad{n}[{UNIT // 4 - len(words)}];"]
    lines += ["  int32_t ids[MAX_TOKENS];", "} Control;", ""]
    return "\n".join(lines)


def _struct(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_")) + "Op"
