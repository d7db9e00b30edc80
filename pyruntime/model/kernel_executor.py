"""The executor over compiled kernels: records the forward pass once (`kernel_plan.py`), and replays it in one call per run.

- It is the same for every host (`kernel_host.py`): CPython with a native library, the browser with WebAssembly.
- The cache has its full size from the start and is never moved; what was not used takes no memory where the system gives
  pages on first use.
- Two qualities: `precise` takes 16-bit activations everywhere, the other bytes for 4-bit weights. `docs/kernels.md` has
  the measurements behind the defaults.
- It does not know text, sampling or where bytes come from.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from pyruntime.errors import FormatError, OutOfMemoryError, StoppedError, compose
from pyruntime.model import families
from pyruntime.model.checks import check_context, check_id, check_room, check_truncation, checked_ids
from pyruntime.model.kernel_abi import IDS_WORD, MAX_TOKENS, UNIT, control_word, number
from pyruntime.model.kernel_plan import KernelSettings, MemoryPlan, plan_memory
from pyruntime.model.kernel_weights import load_weights
from pyruntime.model.program import MAX_OUTPUT
from pyruntime.model.rope import Rope
from pyruntime.model.thread_governor import ThreadGovernor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pyruntime.model.config import ModelConfig
    from pyruntime.model.kernel_host import KernelHost
    from pyruntime.weights.stored import StoredWeights

Array = NDArray[np.float32]

MOST_THREADS = 8  # beyond, memory is the limit, not arithmetic

_STOPPED = number("OUTCOME", "STOPPED")
_ROTATIONS_AT_A_TIME = 1024
_IDS = IDS_WORD * 4 // UNIT
_PATIENCE_S = 0.06  # until a request to stop is heard where it cannot break in
_FIRST_CHUNK = 16
_TELLING = 8  # a prefill run of at least so many tokens says something about the speed of others


async def build_kernel_executor(
    host: KernelHost,
    config: ModelConfig,
    weights: StoredWeights,
    *,
    context: int,
    settings: KernelSettings | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    admit: Callable[[int], Awaitable[None]] | None = None,
) -> KernelExecutor:
    """An executor with all weights read into the host's arena. The host is closed on failure.

    Args:
        host: a fresh one.
        config: the model's shape; not `too_large`.
        weights: where they are.
        context: positions of the KV cache, 1 … config.context_length.
        settings: quality and cache; the defaults when not given.
        on_progress: told (bytes of weights read, bytes of all weights), at the start and after each range read.
        admit: awaited with the bytes of the arena before it is taken.

    Raises:
        ParameterError: `context` is out of its interval.
        FormatError, UnsupportedError: a tensor is missing, superfluous, of the wrong shape, or not finite.
        OutOfMemoryError: the arena cannot be had.
    """
    try:
        check_context(context, config)
        stored = weights.match(families.weight_shapes(config))
        plan = plan_memory(config, stored, context, settings or KernelSettings(), takes_bytes=host.takes_bytes)
        if admit is not None:
            await admit(plan.n_bytes)
        try:
            host.allocate(plan.n_bytes)
        except MemoryError as error:
            problem = f"no memory for {plan.n_bytes / 1e6:,.0f} MB of weights, cache and buffers"
            advice = "Choose a smaller model or less context"
            raise OutOfMemoryError(compose(weights.name, problem, advice=advice)) from error
        on_read = weights.read_counter(on_progress)
        await weights.check_tied_head(on_read)
        await load_weights(host, weights.sources, stored, plan.weights, plan.buffers, on_read)
    except BaseException:
        host.close()
        raise
    return KernelExecutor(host, config, plan, context=context, file=weights.name)


class _Begun(NamedTuple):
    """A run of one token that the helping threads have begun."""

    token_id: int
    position: int
    threads: int


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
        self.name, self.vocab_size, self.context = host.name, config.vocab_size, context
        self.in_8_bits = plan.in_8_bits
        self.length = 0
        self._rotations = 0  # positions of which the rotation table is there
        self.threads: int | None = None  # that many compute; None lets the governor decide about single tokens
        self._clock = clock
        self._governor = ThreadGovernor(host.threads)
        self._begun: _Begun | None = None
        self._seconds_per_token = _PATIENCE_S / _FIRST_CHUNK  # in prefill
        self._write_tables()

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
        start = self.length
        self._compute(ids)
        return self._logits(1, start).reshape(self.vocab_size)

    def forward_all(self, ids: Sequence[int]) -> Array:
        """Append `ids`; logits (len(ids), vocab_size) of all."""
        return np.concatenate(self._append(ids, MAX_OUTPUT, lambda n, last: n))

    def truncate(self, length: int) -> None:
        """Forget the positions from `length` on."""
        check_truncation(length, self.length)
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
        self._compute(ids)
        most = vocab if most is None else min(most, vocab)
        plan = self._plan
        found = self._host.candidates(plan.code.logits, plan.peaks, vocab, below, most, plan.candidates)
        if found is None:
            self._refuse_logits(start)
        tokens, logits = found
        if len(tokens) < most:
            return tokens, logits
        order = np.argsort(tokens)
        return tokens[order], logits[order]

    def close(self) -> None:
        """Give memory and threads back; the executor cannot be used any more."""
        self._abandon()
        self._host.close()

    def _append(
        self, ids: Sequence[int], at_a_time: int, rows_wanted: Callable[[int, bool], int], *, read: bool = True
    ) -> list[Array]:
        """The logits of each chunk that wants some; all chunks are in the cache, or on an error none."""
        checked = checked_ids(ids, self.vocab_size)
        check_room(len(checked), self.length, self.context)
        self._write_rotations(self.length + len(checked))
        start, found = self.length, []
        try:
            for n in range(0, len(checked), at_a_time):
                chunk = checked[n : n + at_a_time]
                wanted = rows_wanted(len(chunk), n + at_a_time >= len(checked))
                self._run(chunk, wanted)
                if wanted and read:
                    found.append(self._logits(wanted, start))
        except BaseException:
            self.length = start
            raise
        return found

    def begin(self, token_id: int) -> None:
        """As `GivesCandidates` says."""
        check_id(token_id, self.vocab_size)
        check_room(1, self.length, self.context)
        self._write_rotations(self.length + 1)
        self._abandon()
        threads = self.threads or self._governor.choose()
        if threads > 1:
            self._host.begin(threads, token_id, self.length)
            self._begun = _Begun(token_id, self.length, threads)

    def _compute(self, ids: Sequence[int]) -> None:
        """Append `ids`; the logits of the last are in the arena then."""
        begun = self._begun
        if begun is None or begun.position != self.length or len(ids) != 1 or ids[0] != begun.token_id:
            self._append(ids, MAX_TOKENS, lambda n, last: int(last), read=False)
        else:
            self._begun = None
            started = self._clock()
            self._take_note(self._host.finish(), 1, begun.threads, started)

    def _abandon(self) -> None:
        """End what was begun and turned out not to be wanted."""
        if self._begun is not None:
            self.stop()
            self._host.finish()
            self.resume()
            self._begun = None

    def _run(self, chunk: NDArray[np.int32], wanted: int) -> None:
        host = self._host
        self._abandon()
        host.write(_IDS, chunk)
        # Runs of many tokens have so many tiles that an absent thread costs little: all take part.
        threads = self.threads or (self._governor.choose() if len(chunk) == 1 else host.threads)
        started = self._clock()
        self._take_note(host.run(threads, len(chunk), self.length, wanted), len(chunk), threads, started)

    def _take_note(self, outcome: int, n: int, threads: int, started: float) -> None:
        """What follows from a run of `n` tokens that is over."""
        if outcome == _STOPPED:
            self.resume()
            raise StoppedError("forward pass: stopped before it was finished. The cache is as it was")
        seconds = self._clock() - started
        if n >= _TELLING:
            self._seconds_per_token = seconds / n
        elif n == 1 and self.threads is None:
            self._governor.record(threads, seconds)
        self.length += n

    def _logits(self, n: int, start: int) -> Array:
        """Those of the last `n` tokens (n, vocab_size); if they are not finite, the cache ends at `start` again."""
        code = self._plan.code
        rows = self._host.read(code.logits, n * code.logits_stride).view(np.float32).reshape(n, -1)
        logits = rows[:, : self.vocab_size]
        if not np.isfinite(logits).all():
            self._refuse_logits(start)
        return logits

    def _refuse_logits(self, start: int) -> NoReturn:
        self.length = start
        raise FormatError(self._file, "weights", "they lead to logits that are not finite", allowed="finite logits")

    def _write_tables(self) -> None:
        """Program and control words."""
        plan = self._plan
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

    def _write_rotations(self, until: int) -> None:
        """The rotation table, as far as positions below `until` need it and it is not there: what is not used takes no memory."""
        size = self._config.head_size
        while self._rotations < until:
            start, n = self._rotations, min(_ROTATIONS_AT_A_TIME, self.context - self._rotations)
            turned = Rope.of(self._config).rotations(start, n)
            rows = np.concatenate([turned.real, turned.imag], axis=1)
            self._host.write(self._plan.rotations + start * size * 4 // UNIT, rows)
            self._rotations += n
