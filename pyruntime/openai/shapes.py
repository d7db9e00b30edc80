"""The answers' shapes: names and nesting are those of the published chat-completions API.

Reference: the API's OpenAPI description, objects `chat.completion`, `chat.completion.chunk`, `model` and `list`;
`reasoning_content` is the name under which servers of open models give thinking. What this runtime never has (audio, refusals,
service tiers) is there and None.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, Literal

FinishReason = Literal["stop", "length", "tool_calls"]


class Shape:
    """Attribute access, and the same as plain JSON data."""

    __slots__ = ()

    def model_dump(self, *, exclude_none: bool = False) -> dict[str, Any]:
        """Dictionaries, lists, strings and numbers.

        Args:
            exclude_none: leave out what is None.
        """
        return {
            field.name: _plain(value, exclude_none=exclude_none)
            for field in fields(self)  # type: ignore[arg-type]  # every shape is a dataclass
            if (value := getattr(self, field.name)) is not None or not exclude_none
        }

    def model_dump_json(self, *, indent: int | None = None, exclude_none: bool = False) -> str:
        """The same as JSON."""
        return json.dumps(self.model_dump(exclude_none=exclude_none), ensure_ascii=False, indent=indent)


def _plain(value: Any, *, exclude_none: bool) -> Any:
    if isinstance(value, Shape):
        return value.model_dump(exclude_none=exclude_none)
    if isinstance(value, list):
        return [_plain(item, exclude_none=exclude_none) for item in value]
    return value


@dataclass(frozen=True)
class TopLogprob(Shape):
    r"""A token and the natural logarithm of its probability.

    Attributes:
        token: its text; bytes that are no whole character are written as `\xf0`.
        logprob: of the model's own distribution, before any sampling parameter.
        bytes: what it adds to the text; None for a control token.
    """

    token: str
    logprob: float
    bytes: list[int] | None


@dataclass(frozen=True)
class ChatCompletionTokenLogprob(TopLogprob):
    """A generated token, with the most probable ones at its place, best first."""

    top_logprobs: list[TopLogprob]


@dataclass(frozen=True)
class ChoiceLogprobs(Shape):
    """The generated tokens in order: those of thinking, of calls and of a stop string as well."""

    content: list[ChatCompletionTokenLogprob]
    refusal: None = None


@dataclass(frozen=True)
class Function(Shape):
    """The function a call is for, and its arguments as JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True)
class ChatCompletionMessageToolCall(Shape):
    """A call that the model asks for: complete JSON, a function that was offered. The arguments are not checked further."""

    id: str
    function: Function
    type: Literal["function"] = "function"


@dataclass(frozen=True)
class ChatCompletionMessage(Shape):
    """The answer. `content` is None where there are calls and no text."""

    content: str | None
    reasoning_content: str | None = None
    tool_calls: list[ChatCompletionMessageToolCall] | None = None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None


@dataclass(frozen=True)
class Choice(Shape):
    """The only answer."""

    finish_reason: FinishReason
    message: ChatCompletionMessage
    logprobs: ChoiceLogprobs | None = None
    index: int = 0


@dataclass(frozen=True)
class PromptTokensDetails(Shape):
    """How many of the prompt's tokens were computed before."""

    cached_tokens: int


@dataclass(frozen=True)
class CompletionUsage(Shape):
    """Counts in tokens; the token that ended the answer is not among the completion's."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


@dataclass(frozen=True)
class ChatCompletion(Shape):
    """A whole answer.

    Attributes:
        created: seconds since the epoch.
        model: the model that answered.
        system_fingerprint: what computed it; the same seed gives the same answer where this is the same.
    """

    id: str
    choices: list[Choice]
    created: int
    model: str
    system_fingerprint: str
    usage: CompletionUsage
    object: Literal["chat.completion"] = "chat.completion"
    service_tier: None = None


@dataclass(frozen=True)
class ChoiceDeltaToolCall(Shape):
    """A call, which comes whole: `index` is its place among the answer's calls."""

    index: int
    id: str
    function: Function
    type: Literal["function"] = "function"


@dataclass(frozen=True)
class ChoiceDelta(Shape):
    """What is added to the answer."""

    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ChoiceDeltaToolCall] | None = None
    role: Literal["assistant"] | None = None
    refusal: None = None
    function_call: None = None


@dataclass(frozen=True)
class ChunkChoice(Shape):
    """Part of the only answer; the last one has the reason why it ended."""

    delta: ChoiceDelta
    finish_reason: FinishReason | None = None
    logprobs: ChoiceLogprobs | None = None
    index: int = 0


@dataclass(frozen=True)
class ChatCompletionChunk(Shape):
    """A part of a streamed answer; attributes as those of ChatCompletion. A chunk without choices has the usage."""

    id: str
    choices: list[ChunkChoice]
    created: int
    model: str
    system_fingerprint: str
    usage: CompletionUsage | None = None
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    service_tier: None = None


@dataclass(frozen=True)
class Model(Shape):
    """A model that can be asked."""

    id: str
    created: int
    owned_by: str
    object: Literal["model"] = "model"


@dataclass(frozen=True)
class ModelPage(Shape):
    """The models."""

    data: list[Model]
    object: Literal["list"] = "list"
