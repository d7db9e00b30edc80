"""Which messages go into a prompt that must leave room for its answer.

The budget is the context less the tokens reserved for the answer. The system prompt and the tools are always in it, and so is
the newest turn: what the user said last is never cut. Of the rest, whole oldest turns are left out until it fits. A turn
begins at a message of the user and ends before the next one, so an answer, its calls and their results stay together; what
stands before the first message of the user is a turn of its own. Nothing is summarised.

How a prompt becomes tokens is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyruntime.chat.messages import Message
from pyruntime.errors import ContextOverflowError, ParameterError

_PINNED = ("system", "developer")
_LARGEST_DEFAULT_RESERVE = 512
_ADVICE = "Shorten the message or the system prompt, or load the model with a larger context"


@dataclass(frozen=True)
class Fitted:
    """A prompt that fits.

    Attributes:
        prompt: its token ids.
        left_out: places of the messages that are not in it, ascending.
    """

    prompt: list[int]
    left_out: tuple[int, ...]


def default_reserve(context: int, max_tokens: int | None) -> int:
    """Tokens kept for an answer if nobody says how many: what it may have at most, or 512, but a quarter of the context."""
    wanted = _LARGEST_DEFAULT_RESERVE if max_tokens is None else max_tokens
    return max(1, min(wanted, context // 4))


def fit(
    messages: Sequence[Message],
    encode: Callable[[Sequence[Message]], list[int]],
    *,
    context: int,
    reserve: int,
) -> Fitted:
    """The prompt of as many newest turns as fit.

    Few prompts are made, and none much larger than the context but the first: it is the common case that everything fits.

    Args:
        messages: the conversation, oldest first; at least one.
        encode: makes a prompt of messages, with what opens the answer.
        context: tokens of prompt and answer together.
        reserve: tokens kept for the answer.

    Raises:
        ContextOverflowError: the pinned messages and the newest turn alone do not fit; the error has the numbers.
        ParameterError: no messages, or a reserve below 1.
    """
    if not messages:
        raise ParameterError("messages", messages, "at least one message")
    if isinstance(reserve, bool) or not isinstance(reserve, int) or reserve < 1:
        raise ParameterError("reserve", reserve, "an integer >= 1")
    pinned, starts = _turns(messages)

    def attempt(turns: int) -> Fitted | None:
        """The prompt of the newest `turns`, if it fits."""
        first = starts[len(starts) - turns]
        prompt = encode([*messages[:pinned], *messages[first:]])
        if len(prompt) + reserve <= context:
            return Fitted(prompt, tuple(range(pinned, first)))
        if turns == 1:
            raise ContextOverflowError(len(prompt) + reserve, context, advice=_ADVICE)
        return None

    whole = attempt(len(starts))
    return whole if whole is not None else _most(attempt, len(starts))


def _most(attempt: Callable[[int], Fitted | None], too_many: int) -> Fitted:
    """The attempt with most turns that succeeds, below a number with which it does not; one turn must succeed."""
    turns, best = 1, attempt(1)
    assert best is not None  # noqa: S101 - a single turn fits or raises
    while 2 * turns < too_many:
        more = attempt(2 * turns)
        if more is None:
            too_many = 2 * turns
        else:
            turns, best = 2 * turns, more
    while too_many - turns > 1:
        middle = (turns + too_many) // 2
        more = attempt(middle)
        if more is None:
            too_many = middle
        else:
            turns, best = middle, more
    return best


def _turns(messages: Sequence[Message]) -> tuple[int, list[int]]:
    """How many messages are pinned, and where each turn behind them begins; there is at least one turn."""
    roles = [message.get("role") for message in messages]
    pinned = next((i for i, role in enumerate(roles) if role not in _PINNED), len(roles))
    users = [i for i, role in enumerate(roles) if role == "user" and i > pinned]
    return pinned, [pinned, *users]
