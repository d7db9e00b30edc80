"""What `benchmarks.tokenizer` measures, on whichever Python runs it: CPython, or Pyodide, where the text of this file runs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pyruntime.text import Tokenizer

_RUNS = {
    "a letter": "a",
    "spaces": " ",
    "newlines": "\n",
    "a combining mark": "\u0301",
    "marks out of order": "\u0301\u0323",
}


def seconds(work: Callable[[], Any]) -> float:
    """How long `work` takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure_load(tables: bytes, sha256: str, runs: int) -> dict[str, float]:
    """Milliseconds to load tables, and to load them and encode a first message; medians."""

    def load_and_encode() -> None:
        Tokenizer.from_tables(tables, sha256).encode("Hello! Which ferry leaves at noon, and is 你好 Chinese?")

    return {
        "tables_ms": 1000 * statistics.median(
            seconds(lambda: Tokenizer.from_tables(tables, sha256)) for _ in range(runs)
        ),
        "tables_and_first_message_ms": 1000 * statistics.median(seconds(load_and_encode) for _ in range(runs)),
    }  # fmt: skip


def measure_encode(tables: bytes, sha256: str, text: str, runs: int) -> dict[str, float]:
    """Megabytes of UTF-8 a second: with nothing remembered of any piece, and once more of the same text; medians."""
    cold, warm = [], []
    for _ in range(runs):
        tokenizer = Tokenizer.from_tables(tables, sha256)
        tokenizer.encode("first: 你好")  # what is made once in a tokenizer's life belongs to loading it
        cold.append(seconds(partial(tokenizer.encode, text)))
        warm.append(seconds(partial(tokenizer.encode, text)))
    size = len(text.encode()) / 1e6
    ids = tokenizer.encode(text)
    return {
        "is_exact": tokenizer.decode(ids) == text,
        "megabytes": size,
        "bytes_per_token": 1e6 * size / len(ids),
        "cold_mb_per_s": size / statistics.median(cold),
        "warm_mb_per_s": size / statistics.median(warm),
    }


def measure_runs(tables: bytes, sha256: str, size: int) -> dict[str, list[float]]:
    """Seconds for runs of one thing, of a quarter, half and the whole of `size` bytes."""
    tokenizer = Tokenizer.from_tables(tables, sha256)
    tokenizer.encode("a" * 1000)
    took: dict[str, list[float]] = {}
    for name, unit in _RUNS.items():
        texts = [unit * (part // len(unit.encode())) for part in (size // 4, size // 2, size)]
        took[name] = [seconds(partial(tokenizer.encode, text)) for text in texts]
    return took


def measure_stream(tables: bytes, sha256: str, text: str, lengths: list[int]) -> dict[str, float]:
    """Microseconds a token of streaming, by the number of tokens in the answer."""
    tokenizer = Tokenizer.from_tables(tables, sha256)
    ids = tokenizer.encode(text)

    def stream(length: int) -> float:
        decoder = tokenizer.stream()
        part = (ids * (1 + length // len(ids)))[:length]
        return 1e6 * seconds(lambda: [decoder.push(token_id) for token_id in part]) / length

    return {str(length): statistics.median(stream(length) for _ in range(3)) for length in lengths}
