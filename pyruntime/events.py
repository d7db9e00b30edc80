"""What happens during one answer, as small values. `engine.chat` yields them in this order:

    PromptReady, PrefillProgress (one or more),
    { TokenScored (if asked for), { Delta | ReasoningDelta | CallReady | CallInvalid } for each token }, Finished

An exception instead of `Finished` means that the answer failed; the deltas that came before it stand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyruntime.chat.tool_calls import InvalidToolCall, ToolCall
from pyruntime.sampling import Logprobs

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True)
class PromptReady:
    """The prompt is rendered and tokenised: `cached_tokens` of its `prompt_tokens` are already in the KV cache."""

    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True)
class PrefillProgress:
    """`done` of `total` prompt tokens that were not cached have been computed."""

    done: int
    total: int


@dataclass(frozen=True)
class TokenScored:
    """What the model thought of the token that comes next: log-probabilities before any sampling parameter."""

    logprobs: Logprobs


@dataclass(frozen=True)
class Delta:
    """More text of the answer, and the token that completed it."""

    text: str
    token_id: int


@dataclass(frozen=True)
class ReasoningDelta:
    """More text of the model's thinking, which is no part of the answer."""

    text: str
    token_id: int


@dataclass(frozen=True)
class CallReady:
    """The model asks for a tool, completely and validly."""

    call: ToolCall


@dataclass(frozen=True)
class CallInvalid:
    """The model asked for a tool in a way that must not be run; `call` says what is wrong."""

    call: InvalidToolCall


@dataclass(frozen=True)
class Usage:
    """Token counts of one answer.

    Attributes:
        prompt_tokens: tokens of the prompt.
        cached_tokens: those of them that the KV cache held already.
        new_tokens: tokens generated, the one that ended the answer not counted.
        left_out: messages of the conversation that did not fit into the prompt.
    """

    prompt_tokens: int
    cached_tokens: int
    new_tokens: int
    left_out: int = 0


@dataclass(frozen=True)
class Timings:
    """Speed of one answer; None where there was nothing to measure.

    Attributes:
        ttft_ms: milliseconds from the request to the first text.
        prefill_tps: prompt tokens computed per second, cached ones not counted.
        decode_tps: (new tokens - 1) per second between the first text and the end.
    """

    ttft_ms: float | None
    prefill_tps: float | None
    decode_tps: float | None


@dataclass(frozen=True)
class Finished:
    """The answer is complete: why it ended, its whole text and thinking, the counts and the speed."""

    reason: FinishReason
    text: str
    reasoning: str
    usage: Usage
    timings: Timings


Event = PromptReady | PrefillProgress | TokenScored | Delta | ReasoningDelta | CallReady | CallInvalid | Finished
