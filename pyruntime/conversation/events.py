"""What happens in a conversation, as small values. A request of `Session` yields, beside those of `pyruntime.events`:

    StateChanged at every transition; MessageAdded when the tree has a new message; PromptFitted before each prompt;
    of calls: ApprovalNeeded, ToolStarted, ToolEnded, and MessageAdded with the result.

The last one is always StateChanged to IDLE. An exception after it says why the request failed.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyruntime.chat.tree import Call, NodeState
from pyruntime.conversation.states import StateChanged
from pyruntime.events import Event


@dataclass(frozen=True)
class MessageAdded:
    """The tree has a message more: the user's when the request begins, an answer when it has ended, a tool's result."""

    node_id: str


@dataclass(frozen=True)
class PromptFitted:
    """What the model is given.

    Attributes:
        prompt_tokens: tokens of the prompt.
        reserve: tokens kept for the answer.
        left_out: ids of the messages that did not fit, oldest first.
    """

    prompt_tokens: int
    reserve: int
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class ApprovalNeeded:
    """A call waits for `Session.approve` or `Session.deny`."""

    call: Call


@dataclass(frozen=True)
class ToolStarted:
    """A call is being run."""

    call: Call


@dataclass(frozen=True)
class ToolEnded:
    """A call has its result: "done", "cancelled" when it was denied, "error" when the tool failed.

    Its message is added when those of all calls before it are, which may be later.
    """

    call: Call
    state: NodeState


@dataclass(frozen=True)
class ToolRoundsExhausted:
    """The model asked for tools again after as many rounds as one request may have; these calls are not run."""

    rounds: int


ToolEvent = ApprovalNeeded | ToolStarted | ToolEnded | MessageAdded
SessionEvent = Event | StateChanged | PromptFitted | ToolEvent | ToolRoundsExhausted
