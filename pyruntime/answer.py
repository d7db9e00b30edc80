"""One answer, from prompt ids to `Finished`, and the KV cache it runs on.

The road of a token: logits → sampler → id → stop ids → output parser → event. There is one such road, for the tokens and
for the flush at the end. Nothing here knows messages or templates.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from pyruntime.chat.output import ContentText, OutputParser, Part, ReasoningText
from pyruntime.chat.tool_calls import InvalidToolCall, ToolCall
from pyruntime.errors import StoppedError
from pyruntime.events import (
    CallInvalid,
    CallReady,
    Delta,
    Event,
    Finished,
    FinishReason,
    PrefillProgress,
    PromptReady,
    ReasoningDelta,
    Timings,
    TokenScored,
    Usage,
)
from pyruntime.model.executor import Closable, GivesCandidates, Stoppable
from pyruntime.sampling import Logprobs, Sampler, SamplingParams

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Sequence

    import numpy as np
    import numpy.typing as npt

    from pyruntime.model.executor import Executor


_TURN_EVERY_S = 0.05
_TURNS = 8  # in Chromium a message of the page waits behind so many turns of a worker that is never idle


class KVState:
    """The executor's cache together with the token ids it holds: the two never disagree between calls.

    Args:
        executor: whose cache this is.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._chooser = executor if isinstance(executor, GivesCandidates) else None
        self._tokens: list[int] = []

    @property
    def tokens(self) -> tuple[int, ...]:
        """The ids whose keys and values the cache holds."""
        return tuple(self._tokens)

    @property
    def prefill_chunk(self) -> int:
        """As `Executor.prefill_chunk`."""
        return self._executor.prefill_chunk

    @property
    def is_full(self) -> bool:
        """Whether the context has no position left."""
        return len(self._tokens) >= self._executor.context

    def keep_prefix_of(self, prompt: Sequence[int]) -> int:
        """Cut the cache back to the ids it shares with the prompt's beginning; returns how many.

        The prompt's last token is never kept: it is computed anew, because its logits are needed.
        """
        shared = min(self.shared_with(prompt), len(prompt) - 1)
        self._cut(shared)
        return shared

    def shared_with(self, prompt: Sequence[int]) -> int:
        """How many ids at its beginning the cache shares with a prompt."""
        limit = min(len(self._tokens), len(prompt))
        return next((i for i in range(limit) if self._tokens[i] != prompt[i]), limit)

    def extend_towards(self, prompt: Sequence[int], most: int) -> bool:
        """Compute up to `most` more of a prompt's ids, behind those that are there already; whether any were missing."""
        shared = self.shared_with(prompt)
        if shared == len(prompt):
            return False
        if shared < len(self._tokens):
            self._cut(shared)
        self.prefill(prompt[shared : shared + most])
        return True

    def prefill(self, ids: Sequence[int]) -> None:
        """Compute ids behind those held, without logits."""
        self._executor.prefill(ids)
        self._tokens.extend(ids)

    def forward(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Compute ids behind those held; the logits after the last one, (vocab,) float32."""
        result = self._executor.forward(ids)
        self._tokens.extend(ids)
        return result

    def begin(self, token_id: int) -> None:
        """Let this token's computation begin where it can; `draw` most likely asks for it next."""
        if self._chooser is not None:
            self._chooser.begin(token_id)

    def draw(self, ids: Sequence[int], sampler: Sampler) -> int:
        """Compute ids behind those held, and draw the token after the last one."""
        shortlist = sampler.shortlist()
        if shortlist is not None and self._chooser is not None:
            found, logits = self._chooser.forward_candidates(ids, *shortlist)
            self._tokens.extend(ids)
            return sampler.sample_among(found, logits, self._executor.vocab_size)
        return sampler.sample(self.forward(ids))

    def forward_all(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Start anew with `ids`; the logits after each, (n, vocab) float32."""
        self._cut(0)
        result = self._executor.forward_all(ids)
        self._tokens.extend(ids)
        return result

    def warm_up(self, ids: Sequence[int]) -> None:
        """Compute for nothing: ids, and one more token by itself; the cache must be empty."""
        sampler = Sampler(SamplingParams())
        try:
            self.draw([self.draw(ids, sampler)], sampler)
        finally:
            self._cut(0)

    def stop(self) -> None:
        """Make the computation under way raise StoppedError, where the executor can."""
        if isinstance(self._executor, Stoppable):
            self._executor.stop()

    def resume(self) -> None:
        """Take back a `stop` that met nothing under way."""
        if isinstance(self._executor, Stoppable):
            self._executor.resume()

    def stop_word(self) -> Any:
        """As `Stoppable.stop_word`."""
        return self._executor.stop_word() if isinstance(self._executor, Stoppable) else None

    def close(self) -> None:
        """Give back what the executor holds; the cache cannot be used any more."""
        if isinstance(self._executor, Closable):
            self._executor.close()

    def settle(self) -> None:
        """After an exception: agree on what both the list and the executor are sure to hold."""
        self._cut(min(len(self._tokens), self._executor.length))

    def _cut(self, length: int) -> None:
        del self._tokens[length:]
        self._executor.truncate(length)


class Answer:
    """One run from prompt ids to `Finished`. It changes the KV state and nothing else.

    Args:
        kv: the cache.
        parser: makes parts of an answer from ids.
        stop_ids: ids that end the answer.
        prompt: the prompt's ids, at least one and fewer than the context has positions.
        params: how tokens are drawn and when to stop.
        stopwatch: started when the request came.
        cancelled: whether to stop; asked before every prefill chunk and after every token.
        end_of_thinking: ids that end the model's thinking when it has used up its budget; none if it has no way of thinking.
    """

    def __init__(
        self,
        kv: KVState,
        parser: OutputParser,
        stop_ids: Collection[int],
        prompt: Sequence[int],
        params: SamplingParams,
        stopwatch: Stopwatch,
        cancelled: Callable[[], bool],
        end_of_thinking: Sequence[int] = (),
    ) -> None:
        self._kv = kv
        self._parser = parser
        self._stop_ids = stop_ids
        self._prompt = prompt
        self._params = params
        self._stopwatch = stopwatch
        self._cancelled = cancelled
        self._end_of_thinking = end_of_thinking
        self._forced: deque[int] = deque()  # ids that come next, whatever the model would say
        self._thought = 0  # tokens of thinking
        self._scored: Logprobs | None = None  # of the token drawn last
        self._can_be_stopped = kv.stop_word() is not None
        self._sampler = Sampler(params)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._new_tokens = 0
        self._next = -1  # the token drawn last
        self._cached = 0

    async def events(self) -> AsyncGenerator[Event, None]:
        """Prefill, then decode until something ends the answer."""
        reason: FinishReason = "cancelled"
        try:
            async with aclosing(self._prefill()) as events:
                async for event in events:
                    yield event
            async with aclosing(self._decode()) as events:
                async for event in events:
                    yield event
            reason = "stop" if self._next in self._stop_ids else "length"
        except StoppedError:
            pass
        # What the parser still holds is part of the answer: nothing is lost at the end.
        for part in self._parser.finish():
            yield self._event(part, self._next)
        yield self._finish("stop" if self._parser.is_stopped else reason)

    async def _prefill(self) -> AsyncGenerator[Event, None]:
        """The prompt's computation, and the first draw."""
        self._cached = self._kv.keep_prefix_of(self._prompt)
        self._stopwatch.prompt_ready()
        yield PromptReady(len(self._prompt), self._cached)
        todo = self._prompt[self._cached :]
        done = 0
        while len(todo) - done > (chunk := self._kv.prefill_chunk):
            await self._give_turn()
            self._kv.prefill(todo[done : done + chunk])
            done += chunk
            yield PrefillProgress(done, len(todo))
        await self._give_turn()
        self._next = self._choose(todo[done:])
        yield PrefillProgress(len(todo), len(todo))
        self._stopwatch.prefill_done()

    async def _decode(self) -> AsyncGenerator[Event, None]:
        """The drawn tokens, until one stops the answer or there is no room for another."""
        while self._next not in self._stop_ids:
            self._new_tokens += 1
            if self._scored is not None:
                yield TokenScored(self._scored)
            is_last = self._new_tokens == self._params.max_tokens or self._kv.is_full
            if not is_last:
                self._kv.begin(self._next)
            was_thinking = self._parser.is_thinking
            for part in self._parser.push(self._next):
                yield self._event(part, self._next)
            self._thought += was_thinking and self._parser.is_thinking  # the marks are no thinking
            if self._parser.is_stopped or is_last:
                return
            await self._give_turn()
            self._next = self._choose([self._next])

    def _choose(self, ids: Sequence[int]) -> int:
        """Compute `ids`, and choose the token after the last one: as drawn, or what ends the thinking."""
        budget = self._params.thinking_budget
        if budget is not None and self._parser.is_thinking and self._thought >= budget and not self._forced:
            self._forced.extend(self._end_of_thinking)
        if self._forced:
            self._kv.prefill(ids)
            token_id, self._scored = self._forced.popleft(), None
        else:
            token_id = self._kv.draw(ids, self._sampler)
            self._scored = self._sampler.logprobs
        if self._cancelled():
            raise StoppedError("answer: stopped while a token was computed, which comes too late")
        return token_id

    async def _give_turn(self) -> None:
        """Give the host's event loop a turn, in which a request to stop can arrive; StoppedError if it has.

        Where another thread can stop a computation, that needs no turn: then there is one only now and then, because in a
        browser, with the caches full of weights, it takes a quarter of a millisecond.
        """
        if not self._can_be_stopped:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
        elif self._stopwatch.elapsed_since_turn() > _TURN_EVERY_S:
            await asyncio.sleep(0)
            self._stopwatch.turn_given()
        if self._cancelled():
            raise StoppedError("answer: stopped by request")

    def _event(self, part: Part, token_id: int) -> Event:
        self._stopwatch.output()
        match part:
            case ContentText(text):
                self._text.append(text)
                return Delta(text, token_id)
            case ReasoningText(text):
                self._reasoning.append(text)
                return ReasoningDelta(text, token_id)
            case ToolCall():
                return CallReady(part)
            case InvalidToolCall():
                return CallInvalid(part)

    def _finish(self, reason: FinishReason) -> Finished:
        usage = Usage(len(self._prompt), self._cached, self._new_tokens)
        text, reasoning = "".join(self._text), "".join(self._reasoning)
        return Finished(reason, text, reasoning, usage, self._stopwatch.timings(usage))


class Stopwatch:
    """The moments of one answer, and the rates between them.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        self._prompt_ready: float | None = None
        self._prefill_done: float | None = None
        self._first_output: float | None = None
        self._turn: float | None = None

    def turn_given(self) -> None:
        """The event loop has had a turn."""
        self._turn = self._clock()

    def elapsed_since_turn(self) -> float:
        """Seconds since the event loop had its last turn; infinite before the first."""
        return float("inf") if self._turn is None else self._clock() - self._turn

    def prompt_ready(self) -> None:
        """The prompt is tokenised."""
        self._prompt_ready = self._clock()

    def prefill_done(self) -> None:
        """The first logits are there."""
        self._prefill_done = self._clock()

    def output(self) -> None:
        """Text or a call was handed out; the first time counts."""
        if self._first_output is None:
            self._first_output = self._clock()

    def timings(self, usage: Usage) -> Timings:
        """The figures, now."""
        first = self._first_output
        return Timings(
            ttft_ms=None if first is None else (first - self._started) * 1000,
            prefill_tps=_rate(usage.prompt_tokens - usage.cached_tokens, self._prompt_ready, self._prefill_done),
            decode_tps=_rate(usage.new_tokens - 1, first, self._clock()),
        )


def _rate(count: int, start: float | None, end: float | None) -> float | None:
    if start is None or end is None or end <= start or count <= 0:
        return None
    return count / (end - start)
