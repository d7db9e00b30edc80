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
        turns: how many turns are in it.
    """

    prompt: list[int]
    left_out: tuple[int, ...]
    turns: int


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
    guess: int | None = None,
) -> Fitted:
    """The prompt of as many newest turns as fit.

    Few prompts are made, and with a good guess two: one that fits, and one that would not.

    Args:
        messages: the conversation, oldest first; at least one.
        encode: makes a prompt of messages, with what opens the answer.
        context: tokens of prompt and answer together.
        reserve: tokens kept for the answer.
        guess: how many turns may fit; by default all. It changes nothing but the time it takes.

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
            return Fitted(prompt, tuple(range(pinned, first)), turns)
        if turns == 1:
            raise ContextOverflowError(len(prompt) + reserve, context, advice=_ADVICE)
        return None

    whole = len(starts)
    if guess is None or guess >= whole:
        fitted = attempt(whole)
        if fitted is not None:
            return fitted
        guess = 1  # a prompt much larger than the context takes long to make
    return _most(attempt, whole, max(1, guess))


def _most(attempt: Callable[[int], Fitted | None], whole: int, guess: int) -> Fitted:
    """The attempt with most turns that succeeds, searched around a guess; one with a single turn succeeds or raises."""
    best: Fitted | None = None
    too_many, turns, step = whole + 1, guess, 1
    while best is None or best.turns + 1 < too_many:
        fitted = attempt(turns)
        if fitted is not None:
            best = fitted
        else:
            too_many = turns
        if best is None:
            turns = max(1, too_many - step)
        elif too_many > whole:
            turns = min(whole, best.turns + step)
        else:
            turns = (best.turns + too_many) // 2
        step *= 2
    return best


def _turns(messages: Sequence[Message]) -> tuple[int, list[int]]:
    """How many messages are pinned, and where each turn behind them begins; there is at least one turn."""
    roles = [message.get("role") for message in messages]
    pinned = next((i for i, role in enumerate(roles) if role not in _PINNED), len(roles))
    users = [i for i, role in enumerate(roles) if role == "user" and i > pinned]
    return pinned, [pinned, *users]
