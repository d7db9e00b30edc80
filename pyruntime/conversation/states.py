"""The states of a conversation's one answer at a time, and the only ways from one to another.

    IDLE → PREFILL → (THINKING →) DECODE → (TOOL_CALL →) COMPLETED | CANCELLED | FAILED → IDLE

TOOL_CALL leads back to PREFILL, because the model is given the results. A call that failed may be run again from IDLE. A
model may think more than once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """What a conversation is doing."""

    IDLE = "idle"
    PREFILL = "prefill"
    THINKING = "thinking"
    DECODE = "decode"
    TOOL_CALL = "tool_call"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


_ENDS = (State.COMPLETED, State.CANCELLED, State.FAILED)

TRANSITIONS: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        State.IDLE: frozenset({State.PREFILL, State.TOOL_CALL}),
        State.PREFILL: frozenset({State.THINKING, State.DECODE, State.CANCELLED, State.FAILED}),
        State.THINKING: frozenset({State.DECODE, *_ENDS}),
        State.DECODE: frozenset({State.THINKING, State.TOOL_CALL, *_ENDS}),
        State.TOOL_CALL: frozenset({State.PREFILL, State.CANCELLED, State.FAILED}),
        **{end: frozenset({State.IDLE}) for end in _ENDS},
    }
)


@dataclass(frozen=True)
class StateChanged:
    """The conversation went from one state to another."""

    before: State
    now: State


class IllegalTransitionError(RuntimeError):
    """A transition that is not in the table: a fault of the program, never of its input."""


class Machine:
    """The state, which changes by `move` only."""

    def __init__(self) -> None:
        self.state = State.IDLE

    def move(self, to: State) -> StateChanged:
        """Enter a state; the event to tell.

        Raises:
            IllegalTransitionError: the table does not have that transition.
        """
        if to not in TRANSITIONS[self.state]:
            raise IllegalTransitionError(f"{self.state} → {to} is no transition of a conversation")
        event = StateChanged(self.state, to)
        self.state = to
        return event
