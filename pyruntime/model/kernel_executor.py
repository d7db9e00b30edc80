"""The executor over compiled kernels: lays out memory, records the forward pass once, and replays it in one call per run.

- It is the same for every host (`kernel_host.py`): CPython with a native library, the browser with WebAssembly.
- The cache has its full size from the start and is never moved; what was not used takes no memory where the system gives
  pages on first use.
- Two qualities: `precise` takes 16-bit activations everywhere, the other bytes for 4-bit weights. `docs/kernels.md` has
  the measurements behind the defaults.
- It does not know text, sampling or where bytes come from.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from pyruntime.errors import (
    ContextOverflowError,
    FormatError,
    OutOfMemoryError,
    ParameterError,
    StoppedError,
    compose,
)
from pyruntime.model import families
from pyruntime.model.decoder import Weights
from pyruntime.model.kernel_abi import (
    CONTROL_BYTES,
    IDS_WORD,
    MAX_HEAD,
    MAX_TOKENS,
    OPERATION_WORDS,
    UNIT,
    control_word,
    number,
)
from pyruntime.model.kernel_layout import Arena, CacheLayout, partials_bytes
from pyruntime.model.kernel_weights import largest_range, load_weights, place_weights
from pyruntime.model.program import MAX_OUTPUT, Program, compile_steps
from pyruntime.model.program_check import check_program
from pyruntime.model.recording import Recorder, Tables, simplified
from pyruntime.model.rope import frequencies, rotations
from pyruntime.model.thread_governor import ThreadGovernor
from pyruntime.weights.names import match_gguf

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyruntime.formats.gguf import TensorInfo
    from pyruntime.formats.source import ByteSource
    from pyruntime.model.config import ModelConfig
    from pyruntime.model.kernel_host import KernelHost
    from pyruntime.model.recording import Handle, Weight

Array = NDArray[np.float32]

MOST_THREADS = 8  # beyond, memory is the limit, not arithmetic

_STOPPED = number("OUTCOME", "STOPPED")
_ROTATIONS_AT_A_TIME = 1024
_PATIENCE_S = 0.06  # until a request to stop is heard where it cannot break in
_FIRST_CHUNK = 16
_TELLING = 8  # a prefill run of at least so many tokens says something about the speed of others


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
        candidates: place of those last asked for.
        cache: the KV cache.
        buffers: place of the values of a run; read ranges are staged there while weights are loaded.
        code: the program, its values placed from `buffers` on.
        weights: our name → handle.
        n_bytes: of the whole arena.
    """

    program: int
    claims: int
    rotations: int
    partials: int
    candidates: int
    cache: CacheLayout
    buffers: int
    code: Program
    weights: Mapping[str, Weight]
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
    candidates = arena.take(8 * config.vocab_size)
    cache = CacheLayout.of_model(config, settings.kv, context, arena.take(cache.n_bytes))

    def row_for(format_: str) -> str:
        if format_ == "Q8" or not takes_bytes:
            return "INT16"
        return "SPLIT" if settings.precise else "INT8"

    recorder = Recorder(config, Tables(cache.words, rotations_place, partials), row_for)
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
    return MemoryPlan(program, claims, rotations_place, partials, candidates, cache, buffers, code, weights, arena.end)


async def build_kernel_executor(
    host: KernelHost,
    config: ModelConfig,
    tensors: Mapping[str, TensorInfo],
    source: ByteSource,
    *,
    context: int,
    settings: KernelSettings | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> KernelExecutor:
    """An executor with all weights read from `source` into the host's arena. The host is closed on failure.

    Args:
        host: a fresh one.
        config: from `config_from_gguf`; not `too_large`.
        tensors: the GGUF file's tensors.
        source: the file.
        context: positions of the KV cache, 1 … config.context_length.
        settings: quality and cache; the defaults when not given.
        on_progress: told (bytes of weights read, bytes of all weights), at the start and after each range read.

    Raises:
        ParameterError: `context` is out of its interval.
        FormatError, UnsupportedError: a tensor is missing, superfluous, of the wrong shape, or not finite.
        OutOfMemoryError: the arena cannot be had.
    """
    try:
        _check_context(context, config)
        stored = match_gguf(families.weight_shapes(config), tensors, file=source.name)
        plan = plan_memory(config, stored, context, settings or KernelSettings(), takes_bytes=host.takes_bytes)
        try:
            host.allocate(plan.n_bytes)
        except MemoryError as error:
            problem = f"no memory for {plan.n_bytes / 1e6:,.0f} MB of weights, cache and buffers"
            advice = "Choose a smaller model or less context"
            raise OutOfMemoryError(compose(source.name, problem, advice=advice)) from error
        total, done = sum(tensor.nbytes for tensor in stored.values()), 0

        def on_read(n_bytes: int) -> None:
            nonlocal done
            done += n_bytes
            if on_progress:
                on_progress(done, total)

        on_read(0)
        await load_weights(host, source, stored, plan.weights, plan.buffers, on_read)
    except BaseException:
        host.close()
        raise
    return KernelExecutor(host, config, plan, context=context, file=source.name)


def _check_context(context: int, config: ModelConfig) -> None:
    if not 1 <= context <= config.context_length:
        raise ParameterError("context", context, f"1 … {config.context_length}, the model's own")


class KernelExecutor:
    """A model in kernel memory. Implements `Executor`, where the methods are described.

    Args:
        host: with an arena of the plan's size, and the weights in it.
        config: the model's shape.
        plan: where things lie.
        context: positions of the KV cache.
        file: the model's file name, for errors.
        clock: seconds, to find out how many threads are fastest.
    """

    def __init__(
        self,
        host: KernelHost,
        config: ModelConfig,
        plan: MemoryPlan,
        *,
        context: int,
        file: str,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._host, self._config, self._plan, self._file = host, config, plan, file
        self.context = context
        self.length = 0
        self.threads: int | None = None  # that many compute; None lets the governor decide about single tokens
        self._clock = clock
        self._governor = ThreadGovernor(host.threads)
        self._seconds_per_token = _PATIENCE_S / _FIRST_CHUNK  # in prefill
        self._write_tables()

    @property
    def name(self) -> str:
        """What it runs on."""
        return self._host.name

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return self._config.vocab_size

    @property
    def prefill_chunk(self) -> int:
        """A whole run where the stop word can be written meanwhile, elsewhere what takes some tens of milliseconds.
        Results do not depend on it.
        """
        if self._host.stop_word() is not None:
            return MAX_TOKENS
        return min(max(int(_PATIENCE_S / self._seconds_per_token), _TELLING), MAX_TOKENS)

    def prefill(self, ids: Sequence[int]) -> None:
        """Append `ids`; no logits."""
        self._append(ids, MAX_TOKENS, lambda n, last: 0)

    def forward(self, ids: Sequence[int]) -> Array:
        """Append `ids`; logits (vocab_size,) of the last."""
        return self._append(ids, MAX_TOKENS, lambda n, last: int(last))[-1].reshape(self.vocab_size)

    def forward_all(self, ids: Sequence[int]) -> Array:
        """Append `ids`; logits (len(ids), vocab_size) of all."""
        return np.concatenate(self._append(ids, MAX_OUTPUT, lambda n, last: n))

    def truncate(self, length: int) -> None:
        """Forget the positions from `length` on."""
        if not 0 <= length <= self.length:
            raise ParameterError("length", length, f"0 … {self.length}, the positions in the cache")
        self.length = length

    def reset(self) -> None:
        """Forget all positions."""
        self.length = 0

    def stop(self) -> None:
        """End the run under way, from another thread, within a millisecond: its call raises StoppedError. If none is under
        way, the next one ends so.
        """
        self._host.write(0, np.ones(1, np.int32))

    def resume(self) -> None:
        """Take back a `stop` that came when no run was under way."""
        self._host.write(0, np.zeros(1, np.int32))

    def stop_word(self) -> Any:
        """What `stop` writes 1 into, for threads outside Python: in the browser an Int32Array of shared memory, or None."""
        return self._host.stop_word()

    def forward_candidates(self, ids: Sequence[int], below: float, most: int | None) -> tuple[NDArray[np.int32], Array]:
        """As `GivesCandidates` says."""
        start, vocab = self.length, self.vocab_size
        self._append(ids, MAX_TOKENS, lambda n, last: int(last), read=False)
        most = vocab if most is None else min(most, vocab)
        found = self._host.candidates(self._plan.code.logits, vocab, below, most, self._plan.candidates)
        if found is None:
            self.length = start
            self._refuse_logits()
        tokens, logits = found
        if len(tokens) < most:
            return tokens, logits
        order = np.argsort(tokens)
        return tokens[order], logits[order]

    def close(self) -> None:
        """Give memory and threads back; the executor cannot be used any more."""
        self._host.close()

    def _append(
        self, ids: Sequence[int], at_a_time: int, rows_wanted: Callable[[int, bool], int], *, read: bool = True
    ) -> list[Array]:
        """The logits of each chunk that wants some; all chunks are in the cache, or on an error none."""
        checked = self._check(ids)
        start, found = self.length, []
        try:
            for n in range(0, len(checked), at_a_time):
                chunk = checked[n : n + at_a_time]
                wanted = rows_wanted(len(chunk), n + at_a_time >= len(checked))
                self._run(chunk, wanted)
                if wanted and read:
                    found.append(self._logits(wanted))
        except BaseException:
            self.length = start
            raise
        return found

    def _run(self, chunk: NDArray[np.int32], wanted: int) -> None:
        host = self._host
        host.write(IDS_WORD * 4 // UNIT, chunk)
        # Runs of many tokens have so many tiles that an absent thread costs little: all take part.
        threads = self.threads or (self._governor.choose() if len(chunk) == 1 else host.threads)
        begun = self._clock()
        outcome = host.run(threads, len(chunk), self.length, wanted)
        if outcome == _STOPPED:
            self.resume()
            raise StoppedError("forward pass: stopped before it was finished. The cache is as it was")
        seconds = self._clock() - begun
        if len(chunk) >= _TELLING:
            self._seconds_per_token = seconds / len(chunk)
        elif len(chunk) == 1 and self.threads is None:
            self._governor.record(threads, seconds)
        self.length += len(chunk)

    def _logits(self, n: int) -> Array:
        code = self._plan.code
        rows = self._host.read(code.logits, n * code.logits_stride).view(np.float32).reshape(n, -1)
        logits = rows[:, : self.vocab_size]
        if not np.isfinite(logits).all():
            self._refuse_logits()
        return logits

    def _refuse_logits(self) -> NoReturn:
        raise FormatError(self._file, "weights", "they lead to logits that are not finite", allowed="finite logits")

    def _write_tables(self) -> None:
        """Program, control words and rotation table."""
        plan, config = self._plan, self._config
        # The one line that no helper writes to: they are waiting already, and have said so in the lines before it.
        line = np.zeros(UNIT // 4, np.int32)
        first = control_word("program")
        for name, word in {
            "program": plan.program, "n_operations": len(plan.code.words), "claims": plan.claims,
            "spin": self._host.spin,
        }.items():  # fmt: skip
            line[control_word(name) - first] = word
        self._host.write(first * 4 // UNIT, line)
        self._host.write(plan.program, plan.code.words)
        turns = frequencies(config.head_size, config.rope_theta)
        for start in range(0, self.context, _ROTATIONS_AT_A_TIME):
            turned = rotations(turns, start, min(_ROTATIONS_AT_A_TIME, self.context - start))
            rows = np.concatenate([turned.real, turned.imag], axis=1)
            self._host.write(plan.rotations + start * config.head_size * 4 // UNIT, rows)

    def _check(self, ids: Sequence[int]) -> NDArray[np.int32]:
        if len(ids) == 1 and type(ids[0]) is int and 0 <= ids[0] < self.vocab_size and self.length < self.context:
            return np.array(ids, np.int32)  # the usual case, in a tenth of the time
        array = np.asarray(ids)
        allowed = f"at least one token id, each an integer 0 … {self.vocab_size - 1}"
        if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
            raise ParameterError("ids", ids, allowed)
        outside = array[(array < 0) | (array >= self.vocab_size)]
        if outside.size:
            raise ParameterError("ids", int(outside[0]), allowed)
        if self.length + array.size > self.context:
            advice = "Shorten the prompt, or open the model with more context"
            raise ContextOverflowError(self.length + array.size, self.context, advice=advice)
        return array.astype(np.int32)
