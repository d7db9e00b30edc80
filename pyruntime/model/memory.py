"""How much memory a model needs in float32, and whether it may be had: asked before anything is allocated."""

from __future__ import annotations

import sys
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from pyruntime.errors import OutOfMemoryError, compose
from pyruntime.model.families import weight_shapes

if TYPE_CHECKING:
    from pyruntime.model.config import ModelConfig

_FLOAT32_BYTES = 4
_MEMINFO = Path("/proc/meminfo")
_MB = 1_000_000  # the unit of the messages, as file managers and download pages count
# Beside weights, cache and attention scores: activations, logits, one read of the file.
_WORKING_BYTES = 32 * _MB
# WebAssembly's 32-bit memory ends at 4 GiB. Measured in Pyodide 314.0.3: 4,048 MiB can be allocated after importing
# numpy, then MemoryError is raised. Tokenizer, template and fragmentation get the rest of the margin.
_WASM_LIMIT = 4 * 1024**3 - 384 * _MB


def memory_limit() -> int | None:
    """Bytes that a model may take here, or None where that cannot be known.

    In the browser: what a 32-bit heap can ever hold. On Linux: what the kernel says is available.
    """
    if sys.platform == "emscripten":
        return _WASM_LIMIT
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def check_fits(config: ModelConfig, context: int, max_run: int, limit: int | None, *, file: str) -> int:
    """The bytes that the model takes; OutOfMemoryError, with the numbers, if that is more than `limit`.

    Args:
        config: the model's shape.
        context: positions of the KV cache, which is counted as if full.
        max_run: most ids of one run.
        limit: bytes that can be had; None when that is not known, and everything is let through.
        file: the model's file name, for the error.
    """
    weights = _FLOAT32_BYTES * sum(prod(shape) for shape in weight_shapes(config).values())
    cache = _FLOAT32_BYTES * 2 * config.n_layers * config.n_kv_heads * config.head_size * context
    working = _WORKING_BYTES + _FLOAT32_BYTES * config.n_heads * max_run * context
    needed = weights + cache + working
    if limit is None or needed <= limit:
        return needed
    problem = (
        f"it needs {_megabytes(weights)} for weights in float32, {_megabytes(cache)} for {context} positions of context "
        f"and {_megabytes(working)} to work in, and {_megabytes(limit)} can be had"
    )
    raise OutOfMemoryError(compose(file, problem, advice="Choose a smaller model or less context"))


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / _MB:,.0f} MB"
