"""Where everything of a model lies in kernel memory, decided and checked before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyruntime.model import families
from pyruntime.model.decoder import Weights
from pyruntime.model.kernel_abi import CONTROL_BYTES, MAX_HEAD, OPERATION_WORDS, UNIT
from pyruntime.model.kernel_layout import Arena, CacheLayout, partials_bytes, peaks_bytes
from pyruntime.model.kernel_weights import in_8_bits, largest_range, place_weights
from pyruntime.model.program import MAX_OUTPUT, Program, compile_steps
from pyruntime.model.program_check import check_program
from pyruntime.model.recording import Recorder, Tables, simplified

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyruntime.formats.tensor_info import TensorInfo
    from pyruntime.model.config import ModelConfig
    from pyruntime.model.recording import Handle, Weight


@dataclass(frozen=True)
class KernelSettings:
    """What is chosen when a model is loaded.

    Attributes:
        precise: 16-bit activations for 4-bit weights too.
        kv: how keys and values are cached.
    """

    precise: bool = False
    kv: Literal["INT16", "INT8"] = "INT16"


@dataclass(frozen=True)
class MemoryPlan:
    """Where everything lies, decided before anything is allocated.

    Attributes:
        program: place of the operations.
        claims: place of one counter per operation.
        rotations: place of the rotation table.
        partials: place of attention's partial results.
        peaks: place of the logits' peaks.
        candidates: place of those last asked for.
        cache: the KV cache.
        buffers: place of the values of a run; read ranges are staged there while weights are loaded.
        code: the program, its values placed from `buffers` on.
        weights: our name → handle.
        in_8_bits: as `Executor` says.
        n_bytes: of the whole arena.
    """

    program: int
    claims: int
    rotations: int
    partials: int
    peaks: int
    candidates: int
    cache: CacheLayout
    buffers: int
    code: Program
    weights: Mapping[str, Weight]
    in_8_bits: tuple[str, ...]
    n_bytes: int


def too_large(config: ModelConfig) -> str | None:
    """What of the model's shape is more than the kernels can do; None when they can run it."""
    if config.head_size > MAX_HEAD:
        return f"heads of {config.head_size} values are more than the kernels' {MAX_HEAD}"
    return None


def plan_memory(
    config: ModelConfig,
    stored: Mapping[str, TensorInfo],
    context: int,
    settings: KernelSettings,
    *,
    takes_bytes: bool,
) -> MemoryPlan:
    """The plan for a model whose cache has `context` positions."""
    arena = Arena()
    arena.take(CONTROL_BYTES)
    rotations_place = arena.take(4 * config.head_size * context)
    weights = place_weights(stored, arena)
    writable = arena.end // UNIT
    cache = CacheLayout.of_model(config, settings.kv, context)
    partials = arena.take(partials_bytes(config.n_heads, config.n_kv_heads, config.head_size, cache.capacity))
    peaks = arena.take(peaks_bytes(config.vocab_size, MAX_OUTPUT))
    candidates = arena.take(8 * config.vocab_size)
    cache = CacheLayout.of_model(config, settings.kv, context, arena.take(cache.n_bytes))

    def row_for(format_: str) -> str:
        if format_ == "Q8" or not takes_bytes:
            return "INT16"
        return "SPLIT" if settings.precise else "INT8"

    recorder = Recorder(config, Tables(cache.words, rotations_place, partials, peaks), row_for)
    handles: dict[str, Handle] = dict(weights)
    families.forward(config, recorder, Weights.from_names(handles, config.n_layers))
    steps = simplified(recorder.steps)
    program, claims = arena.take(4 * OPERATION_WORDS * len(steps)), arena.take(8 * len(steps))
    buffers = arena.end // UNIT
    code = compile_steps(steps, buffers)
    arena.take(max(code.buffer_bytes, largest_range(stored)))
    check_program(
        code.words,
        arena_bytes=arena.end,
        writable_from=writable,
        vocab_size=config.vocab_size,
        context=context,
    )
    return MemoryPlan(
        program=program,
        claims=claims,
        rotations=rotations_place,
        partials=partials,
        peaks=peaks,
        candidates=candidates,
        cache=cache,
        buffers=buffers,
        code=code,
        weights=weights,
        in_8_bits=in_8_bits(stored),
        n_bytes=arena.end,
    )
