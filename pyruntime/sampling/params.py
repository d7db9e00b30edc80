"""The sampling parameters, validated once, when they are made.

An error names the parameter, the value found and the interval allowed. Nothing here knows logits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyruntime.errors import ParameterError

_SEED_LIMIT = 2**64
_MOST_LOGPROBS = 20
_LOWEST_TEMPERATURE = 1e-6  # below it, logits / temperature leaves the range in which float64 tells logits apart


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen, and when to stop.

    Attributes:
        temperature: the logits are divided by it (1e-6 to 100); 0 takes the most probable token (the lowest id on a tie).
        top_k: keep the k most probable tokens (lower ids win ties); 0 switches it off.
        top_p: keep the smallest set of most probable tokens whose sum reaches it; 1 switches it off.
        min_p: keep tokens with p >= min_p · p_max, ties included; 0 switches it off.
        presence_penalty: subtracted once from the logit of every token generated so far.
        frequency_penalty: subtracted from a token's logit once for each time it was generated.
        logit_bias: token id → added to its logit.
        seed: makes a run reproducible on one executor; None draws a fresh one.
        stop: the answer ends before the first of these strings; no part of one is ever shown.
        max_tokens: the longest answer in tokens; None means as far as the context reaches.
        thinking_budget: tokens a model may think before its thinking is ended for it; None means no such limit. A model
            that marks no thinking has none to end.
        logprobs: also tell, of each token, its log-probability before any of these parameters, and those of so many of the
            most probable tokens; None switches it off. It needs all logits, which costs time.

    Raises:
        ParameterError: a value is outside its interval or of the wrong type.
    """

    temperature: float = 0.7
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.05
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    thinking_budget: int | None = None
    logprobs: int | None = None

    def __post_init__(self) -> None:
        _number("temperature", self.temperature, 0.0, 100.0)
        if 0 < self.temperature < _LOWEST_TEMPERATURE:
            allowed = f"0 (the most probable token) or a number in [{_LOWEST_TEMPERATURE:g}, 100]"
            raise ParameterError("temperature", self.temperature, allowed)
        _integer("top_k", self.top_k, 0, None)
        _number("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _number("min_p", self.min_p, 0.0, 1.0)
        _number("presence_penalty", self.presence_penalty, -100.0, 100.0)
        _number("frequency_penalty", self.frequency_penalty, -100.0, 100.0)
        if self.seed is not None:
            _integer("seed", self.seed, 0, _SEED_LIMIT - 1)
        if self.max_tokens is not None:
            _integer("max_tokens", self.max_tokens, 1, None)
        if self.thinking_budget is not None:
            _integer("thinking_budget", self.thinking_budget, 0, None)
        if self.logprobs is not None:
            _integer("logprobs", self.logprobs, 0, _MOST_LOGPROBS)
        self._check_logit_bias()
        self._check_stop()

    def _check_logit_bias(self) -> None:
        if not isinstance(self.logit_bias, Mapping):
            raise ParameterError("logit_bias", self.logit_bias, "a mapping of token id to number")
        for token_id, bias in self.logit_bias.items():
            _integer("logit_bias: token id", token_id, 0, None)
            _number(f"logit_bias[{token_id}]", bias, -1e6, 1e6)

    def _check_stop(self) -> None:
        if not isinstance(self.stop, tuple | list):
            raise ParameterError("stop", self.stop, "a tuple of strings")
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise ParameterError("stop", text, "strings of at least one character")
        object.__setattr__(self, "stop", tuple(self.stop))


def _number(name: str, value: object, low: float, high: float, *, open_low: bool = False) -> None:
    interval = f"a number in {'(' if open_low else '['}{low:g}, {high:g}]"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParameterError(name, value, interval)
    if not math.isfinite(value) or not low <= value <= high or (open_low and value == low):
        raise ParameterError(name, value, interval)


def _integer(name: str, value: object, low: int, high: int | None) -> None:
    allowed = f"an integer >= {low}" if high is None else f"an integer in [{low}, {high}]"
    if isinstance(value, bool) or not isinstance(value, int):
        raise ParameterError(name, value, allowed)
    if value < low or (high is not None and value > high):
        raise ParameterError(name, value, allowed)
