"""The engine's events → the chunks of a streamed answer, and chunks → the whole answer.

A whole answer is made of the chunks that would have been streamed, so the two never differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from pyruntime.chat.tool_calls import ToolCall
from pyruntime.errors import StoppedError
from pyruntime.events import (
    CallInvalid,
    CallReady,
    Delta,
    Event,
    Finished,
    PromptReady,
    ReasoningDelta,
    TokenScored,
    Usage,
)
from pyruntime.openai.shapes import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessage,
    ChatCompletionMessageToolCall,
    ChatCompletionTokenLogprob,
    Choice,
    ChoiceDelta,
    ChoiceDeltaToolCall,
    ChoiceLogprobs,
    ChunkChoice,
    CompletionUsage,
    FinishReason,
    Function,
    PromptTokensDetails,
    TopLogprob,
)
from pyruntime.sampling import Logprobs


class _Tokenizer(Protocol):
    @property
    def control_ids(self) -> Mapping[str, int]: ...

    def token_bytes(self, token_id: int) -> bytes | None: ...


@dataclass(frozen=True)
class Head:
    """What all chunks of an answer have in common; attributes as those of ChatCompletion."""

    id: str
    created: int
    model: str
    system_fingerprint: str

    def chunk(self, *choices: ChunkChoice, usage: CompletionUsage | None = None) -> ChatCompletionChunk:
        """A chunk of this answer."""
        return ChatCompletionChunk(
            self.id, list(choices), self.created, self.model, self.system_fingerprint, usage=usage
        )


class Chunks:
    """Makes the chunks of one answer.

    Args:
        head: what they have in common.
        tokenizer: tells the text of tokens.
        new_call_id: makes an id for a call.
        single: whether the model can be answered one call at a time only.
        scored: whether log-probabilities were asked for.
        include_usage: whether the counts come in a chunk of their own at the end.
    """

    def __init__(
        self,
        head: Head,
        tokenizer: _Tokenizer,
        new_call_id: Callable[[], str],
        *,
        single: bool,
        scored: bool,
        include_usage: bool,
    ) -> None:
        self._head = head
        self._tokenizer = tokenizer
        self._control_texts = {token_id: text for text, token_id in tokenizer.control_ids.items()}
        self._new_call_id = new_call_id
        self._single = single
        self._scored: list[ChatCompletionTokenLogprob] | None = [] if scored else None  # not handed out yet
        self._include_usage = include_usage
        self._calls = 0

    def take(self, event: Event) -> list[ChatCompletionChunk]:
        """The chunks that an event completes.

        Raises:
            StoppedError: somebody stopped the answer.
        """
        match event:
            case PromptReady():
                return [self._chunk(ChoiceDelta(role="assistant", content=""))]
            case TokenScored(logprobs):
                if self._scored is not None:
                    self._scored.append(self._token(logprobs))
                return []
            case Delta(text):
                return [self._chunk(ChoiceDelta(content=text))]
            case ReasoningDelta(text):
                return [self._chunk(ChoiceDelta(reasoning_content=text))]
            case CallReady(call) if not (self._single and self._calls):
                return [self._chunk(self._call(call))]
            case CallReady(call) | CallInvalid(call):
                # A call that nobody can be asked to run is what the model wrote: text.
                return [self._chunk(ChoiceDelta(content=call.raw))]
            case Finished():
                return self._end(event)
            case _:
                return []

    def _end(self, event: Finished) -> list[ChatCompletionChunk]:
        if event.reason == "cancelled":
            raise StoppedError("answer: it was stopped before its end. Ask again")
        reason: FinishReason = "tool_calls" if self._calls and event.reason == "stop" else event.reason
        last = self._chunk(ChoiceDelta(), reason)
        return [last, self._head.chunk(usage=_usage(event.usage))] if self._include_usage else [last]

    def _chunk(self, delta: ChoiceDelta, finish_reason: FinishReason | None = None) -> ChatCompletionChunk:
        logprobs = None
        if self._scored or (finish_reason and self._scored is not None):
            logprobs, self._scored = ChoiceLogprobs(self._scored), []
        return self._head.chunk(ChunkChoice(delta, finish_reason, logprobs))

    def _call(self, call: ToolCall) -> ChoiceDelta:
        function = Function(call.name, json.dumps(call.arguments, ensure_ascii=False))
        found = ChoiceDeltaToolCall(self._calls, self._new_call_id(), function)
        self._calls += 1
        return ChoiceDelta(tool_calls=[found])

    def _token(self, logprobs: Logprobs) -> ChatCompletionTokenLogprob:
        top = [self._top(token_id, logprob) for token_id, logprob in logprobs.top]
        own = self._top(logprobs.token_id, logprobs.logprob)
        return ChatCompletionTokenLogprob(own.token, own.logprob, own.bytes, top)

    def _top(self, token_id: int, logprob: float) -> TopLogprob:
        data = self._tokenizer.token_bytes(token_id)
        if data is None:
            return TopLogprob(self._control_texts.get(token_id, ""), logprob, None)
        return TopLogprob(data.decode(errors="backslashreplace"), logprob, list(data))


def whole(chunks: Iterable[ChatCompletionChunk]) -> ChatCompletion:
    """The answer of which these are all chunks, that with the usage among them."""
    parts = list(chunks)
    choices = [choice for chunk in parts for choice in chunk.choices]
    deltas = [choice.delta for choice in choices]
    head, usage, last = parts[0], parts[-1].usage, choices[-1]
    assert usage is not None and last.finish_reason is not None  # noqa: S101, PT018 - the chunks are complete
    calls = [
        ChatCompletionMessageToolCall(call.id, call.function) for delta in deltas for call in delta.tool_calls or ()
    ]
    text = "".join(delta.content or "" for delta in deltas)
    message = ChatCompletionMessage(
        content=text if text or not calls else None,
        reasoning_content="".join(delta.reasoning_content or "" for delta in deltas) or None,
        tool_calls=calls or None,
    )
    logprobs = last.logprobs and replace(
        last.logprobs, content=[token for choice in choices if choice.logprobs for token in choice.logprobs.content]
    )
    choice = Choice(last.finish_reason, message, logprobs)
    return ChatCompletion(head.id, [choice], head.created, head.model, head.system_fingerprint, usage)


def _usage(usage: Usage) -> CompletionUsage:
    total = usage.prompt_tokens + usage.new_tokens
    details = PromptTokensDetails(usage.cached_tokens)
    return CompletionUsage(usage.prompt_tokens, usage.new_tokens, total, details)
