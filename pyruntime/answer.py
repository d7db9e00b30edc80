"""One answer, from prompt ids to `Finished`, and the KV cache it runs on.

The road of a token: logits → sampler → id → stop ids → output parser → event. There is one such road, for the tokens and
for the flush at the end. Nothing here knows messages or templates.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING

from pyruntime.chat.output import ContentText, OutputParser, Part, ReasoningText
from pyruntime.chat.tool_calls import InvalidToolCall, ToolCall
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
    Usage,
)
from pyruntime.model.executor import GivesCandidates
from pyruntime.sampling import Sampler, SamplingParams

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Sequence

    import numpy as np
    import numpy.typing as npt

    from pyruntime.model.executor import Executor

# Tokens computed per prefill step: large enough for matrix products to pay, small enough that Stop and the
# progress display get their turn several times a second.
PREFILL_CHUNK = 32


class KVState:
    """The executor's cache together with the token ids it holds: the two never disagree between calls.

    Args:
        executor: whose cache this is.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._tokens: list[int] = []

    @property
    def tokens(self) -> tuple[int, ...]:
        """The ids whose keys and values the cache holds."""
        return tuple(self._tokens)

    @property
    def is_full(self) -> bool:
        """Whether the context has no position left."""
        return len(self._tokens) >= self._executor.context

    def keep_prefix_of(self, prompt: Sequence[int]) -> int:
        """Cut the cache back to the ids it shares with the prompt's beginning; returns how many.

        The prompt's last token is never kept: it is computed anew, because its logits are needed.
        """
        limit = min(len(self._tokens), len(prompt) - 1)
        shared = next((i for i in range(limit) if self._tokens[i] != prompt[i]), limit)
        self._cut(shared)
        return shared

    def prefill(self, ids: Sequence[int]) -> None:
        """Compute ids behind those held, without logits."""
        self._executor.prefill(ids)
        self._tokens.extend(ids)

    def forward(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Compute ids behind those held; the logits after the last one, (vocab,) float32."""
        result = self._executor.forward(ids)
        self._tokens.extend(ids)
        return result

    def draw(self, ids: Sequence[int], sampler: Sampler) -> int:
        """Compute ids behind those held, and draw the token after the last one."""
        shortlist = sampler.shortlist()
        if shortlist is not None and isinstance(self._executor, GivesCandidates):
            found, logits = self._executor.forward_candidates(ids, *shortlist)
            self._tokens.extend(ids)
            return sampler.sample_among(found, logits, self._executor.vocab_size)
        return sampler.sample(self.forward(ids))

    def forward_all(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Start anew with `ids`; the logits after each, (n, vocab) float32."""
        self._cut(0)
        result = self._executor.forward_all(ids)
        self._tokens.extend(ids)
        return result

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
        self._sampler = Sampler(params)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._new_tokens = 0
        self._cached = 0

    async def events(self) -> AsyncGenerator[Event, None]:
        """Prefill, then decode until something ends the answer."""
        self._cached = self._kv.keep_prefix_of(self._prompt)
        self._stopwatch.prompt_ready()
        yield PromptReady(len(self._prompt), self._cached)
        todo = self._prompt[self._cached :]
        last_chunk = (len(todo) - 1) // PREFILL_CHUNK * PREFILL_CHUNK
        for start in range(0, last_chunk, PREFILL_CHUNK):
            if await self._cancel_requested():
                yield self._finish("cancelled")
                return
            self._kv.prefill(todo[start : start + PREFILL_CHUNK])
            yield PrefillProgress(start + PREFILL_CHUNK, len(todo))
        if await self._cancel_requested():
            yield self._finish("cancelled")
            return
        token_id = self._next(todo[last_chunk:])
        if self._cancelled():
            yield self._finish("cancelled")
            return
        yield PrefillProgress(len(todo), len(todo))
        self._stopwatch.prefill_done()
        async with aclosing(self._decode(token_id)) as events:
            async for event in events:
                yield event

    async def _decode(self, token_id: int) -> AsyncGenerator[Event, None]:
        while True:
            if token_id in self._stop_ids:
                reason: FinishReason = "stop"
                break
            self._new_tokens += 1
            was_thinking = self._parser.is_thinking
            for part in self._parser.push(token_id):
                yield self._event(part, token_id)
            self._thought += was_thinking and self._parser.is_thinking  # the marks are no thinking
            if self._parser.is_stopped:
                reason = "stop"
                break
            if self._new_tokens == self._params.max_tokens or self._kv.is_full:
                reason = "length"
                break
            if await self._cancel_requested():
                reason = "cancelled"
                break
            token_id = self._next([token_id])
            if self._cancelled():
                # Told to stop while it was computed: this token comes too late.
                reason = "cancelled"
                break
        # What the parser still holds is part of the answer: nothing is lost at the end.
        for part in self._parser.finish():
            yield self._event(part, token_id)
        yield self._finish("stop" if self._parser.is_stopped else reason)

    def _next(self, ids: Sequence[int]) -> int:
        """Compute `ids`, and choose the token after the last one: as drawn, or what ends the thinking."""
        budget = self._params.thinking_budget
        if budget is not None and self._parser.is_thinking and self._thought >= budget and not self._forced:
            self._forced.extend(self._end_of_thinking)
        if not self._forced:
            return self._kv.draw(ids, self._sampler)
        self._kv.prefill(ids)
        return self._forced.popleft()

    async def _cancel_requested(self) -> bool:
        # Gives the host's event loop a turn, in which a request to stop can arrive.
        await asyncio.sleep(0)
        return self._cancelled()

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
