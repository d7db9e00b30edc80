"""A conversation as an immutable tree of messages: every edit, new attempt and continuation is a branch.

A node never changes and never goes; an operation gives a new tree that shares the nodes of the old one. `chosen` says, for
each node with answers below it, which one is shown: following it from the top gives the active path, which is what the
model is given. Where nothing is chosen the path ends, though there may be branches below.

Ids and times come from the caller. Nothing here knows templates, engines or storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, get_args

from pyruntime.chat.messages import copy_value
from pyruntime.errors import ParameterError, shorten

Role = Literal["user", "assistant", "tool"]
# How a message came to its end: whole, stopped by the user, cut by a reload or a crash of the page, or failed.
NodeState = Literal["done", "cancelled", "interrupted", "error"]
ROLES: tuple[Role, ...] = get_args(Role)
STATES: tuple[NodeState, ...] = get_args(NodeState)

LONGEST_ID = 200
MOST_CALLS = 64  # in one answer
_MAY_FOLLOW: Mapping[str | None, tuple[Role, ...]] = {
    None: ("user", "assistant"),
    "user": ("user", "assistant"),
    "assistant": ("user", "assistant", "tool"),
    "tool": ("user", "assistant", "tool"),
}


@dataclass(frozen=True)
class TextPart:
    """A piece of a message's content, as it was written."""

    text: str


@dataclass(frozen=True)
class Call:
    """A call for a tool inside an answer.

    Attributes:
        id: names the call within the conversation; a tool's result says which call it answers.
        name: the tool; "" if the call is malformed.
        arguments: JSON text of an object; "" if the call is malformed.
        raw: the text the model wrote.
        problem: what is wrong with a malformed call, which is shown and never sent to a model; otherwise None.
    """

    id: str
    name: str
    arguments: str
    raw: str
    problem: str | None = None


@dataclass(frozen=True)
class Node:
    """One message.

    Attributes:
        id: unique in its tree, 1 to 200 characters.
        parent: id of the message it follows; None for a first message.
        role: "user", "assistant", or "tool" for the result of a call.
        content: its parts in order.
        created: milliseconds since the epoch.
        reasoning: an answer's thinking.
        calls: the calls in an answer.
        call_id: of a tool's result: the call it answers.
        state: how it came to its end.
        stop_reason: of an answer: why the model stopped ("stop", "length", "cancelled").
        continues: of an answer: the one beside it whose text it goes on with.
        model: of an answer: who wrote it.
        params: of an answer: the sampling parameters, plain JSON values.
        usage: of an answer: counts of tokens and of messages left out.
        timings: of an answer: milliseconds and rates.

    Raises:
        ParameterError: a field that its role does not have, or an id that is none.
    """

    id: str
    parent: str | None
    role: Role
    content: tuple[TextPart, ...]
    created: int
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    call_id: str | None = None
    state: NodeState = "done"
    stop_reason: str | None = None
    continues: str | None = None
    model: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)
    timings: Mapping[str, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not 0 < len(self.id) <= LONGEST_ID:
            raise ParameterError("id", self.id, f"a string of 1 to {LONGEST_ID} characters")
        if self.role not in ROLES:
            raise ParameterError("role", self.role, ", ".join(ROLES))
        if self.state not in STATES:
            raise ParameterError("state", self.state, ", ".join(STATES))
        if (self.role == "tool") != (self.call_id is not None):
            raise ParameterError("call_id", self.call_id, "the id of a call for a tool's result, and none for others")
        for name in ("reasoning", "calls", "stop_reason", "continues", "model", "params", "usage", "timings"):
            if self.role != "assistant" and getattr(self, name):
                raise ParameterError(name, getattr(self, name), f"nothing for a message of the {self.role}")
        if len(self.calls) > MOST_CALLS:
            raise ParameterError("calls", len(self.calls), f"at most {MOST_CALLS}")
        if len({call.id for call in self.calls}) < len(self.calls):
            raise ParameterError("calls", [call.id for call in self.calls], "an id of its own for each call")
        for name in ("params", "usage", "timings"):
            given = getattr(self, name)
            object.__setattr__(self, name, MappingProxyType(copy_value(given, str, name) if given else {}))

    @property
    def text(self) -> str:
        """Its content as one text."""
        return "".join(part.text for part in self.content)


def text_content(text: str) -> tuple[TextPart, ...]:
    """Content of one text; none for an empty one."""
    return (TextPart(text),) if text else ()


@dataclass(frozen=True)
class Tree:
    """Messages, which of them are shown, and what belongs to the conversation as a whole.

    Made empty and changed by its operations; `checked` makes one from parts of any origin.

    Attributes:
        nodes: id → message, in the order they were added.
        chosen: id of a message (None: above the first) → the one below it that is shown.
        system: the system prompt; None for the template's own.
        title: the conversation's name.
    """

    nodes: Mapping[str, Node] = field(default_factory=lambda: MappingProxyType({}))
    chosen: Mapping[str | None, str] = field(default_factory=lambda: MappingProxyType({}))
    system: str | None = None
    title: str = ""

    @cached_property
    def path(self) -> tuple[Node, ...]:
        """The messages shown, from the first to the last."""
        found: list[Node] = []
        at = self.chosen.get(None)
        while at is not None:
            found.append(self.nodes[at])
            at = self.chosen.get(at)
        return tuple(found)

    @property
    def leaf(self) -> Node | None:
        """The last message shown."""
        return self.path[-1] if self.path else None

    @cached_property
    def children(self) -> Mapping[str | None, tuple[str, ...]]:
        """Id of a message (None: above the first) → the ids of all that follow it, oldest first."""
        found: dict[str | None, list[str]] = {}
        for node in self.nodes.values():
            found.setdefault(node.parent, []).append(node.id)
        return {parent: tuple(ids) for parent, ids in found.items()}

    def node(self, node_id: str) -> Node:
        """The message of that id; ParameterError if there is none."""
        try:
            return self.nodes[node_id]
        except (KeyError, TypeError):
            raise ParameterError("message", node_id, "the id of a message of this conversation") from None

    def siblings(self, node_id: str) -> tuple[str, ...]:
        """The branches at this place: the ids of all messages with the same parent, oldest first, its own among them."""
        return self.children[self.node(node_id).parent]

    def ancestors(self, node_id: str | None) -> tuple[Node, ...]:
        """The messages from the first down to `node_id`, that one included."""
        found: list[Node] = []
        while node_id is not None:
            found.append(self.node(node_id))
            node_id = found[-1].parent
        return tuple(reversed(found))

    def add(self, node: Node) -> Tree:
        """With a new message, which is shown.

        Raises:
            ParameterError: its id is taken, its parent is missing, it may not follow that one, or it continues or answers
                what is not there.
        """
        if node.id in self.nodes:
            raise ParameterError("id", node.id, "an id that no other message has")
        _check_place(node, self.nodes)
        added = replace(self, nodes=MappingProxyType({**self.nodes, node.id: node}))
        return added.select(node.id)

    def ask(self, node_id: str, text: str, created: int) -> Tree:
        """With a new message of the user behind the last one shown."""
        parent = self.leaf.id if self.leaf else None
        return self.add(Node(node_id, parent, "user", text_content(text), created))

    def edit(self, of: str, node_id: str, text: str, created: int) -> Tree:
        """With another wording of a message as a branch beside it, and nothing below; the old branch stays.

        Raises:
            ParameterError: `of` is missing or is a tool's result, or `node_id` is taken.
        """
        old = self.node(of)
        if old.role == "tool":
            raise ParameterError(
                "message", of, "a message of the user or the assistant: a tool's result stays as it is"
            )
        return self.add(Node(node_id, old.parent, old.role, text_content(text), created))

    def before(self, node_id: str) -> Tree:
        """With a path that ends right above a message, for another one to be added beside it.

        Raises:
            ParameterError: there is no such message, or nothing above it.
        """
        parent = self.node(node_id).parent
        if parent is None:
            raise ParameterError("message", node_id, "a message that follows another one")
        shown = self.select(parent)
        return replace(shown, chosen=_without(shown.chosen, parent))

    def select(self, node_id: str) -> Tree:
        """With the branch shown that leads to a message; below it, whatever was last shown there."""
        chosen = dict(self.chosen)
        chosen.update({node.parent: node.id for node in self.ancestors(node_id)})
        return replace(self, chosen=MappingProxyType(chosen))

    def with_system(self, system: str | None) -> Tree:
        """With another system prompt and the same messages."""
        return replace(self, system=system)

    def with_title(self, title: str) -> Tree:
        """With another name."""
        return replace(self, title=title)

    def merge(self, other: Tree) -> Tree:
        """With the messages of both: what another page added to the same conversation is not lost.

        Where both have a message of one id, an interrupted one gives way to what became of it. Branches shown, system
        prompt and title are this tree's, and the other's where this one says nothing.

        Raises:
            ParameterError: one id stands for two different messages.
        """
        nodes = {**self.nodes}
        for theirs in other.nodes.values():
            ours = nodes.get(theirs.id, theirs)
            nodes[theirs.id] = ours if ours == theirs else _later(ours, theirs)
        return checked(
            nodes.values(),
            {**other.chosen, **self.chosen},
            self.system if self.system is not None else other.system,
            self.title or other.title,
        )


def checked(
    nodes: Iterable[Node], chosen: Mapping[str | None, str], system: str | None = None, title: str = ""
) -> Tree:
    """A tree from parts of any origin, in any order.

    Raises:
        ParameterError: two messages of one id, a missing or unfitting parent, parents in a circle, or a choice that leads
            nowhere; the parameter names the message and the field.
    """
    by_id: dict[str, Node] = {}
    for node in nodes:
        if node.id in by_id:
            raise ParameterError(f"message {shorten(node.id)}: id", node.id, "an id that no other message has")
        by_id[node.id] = node
    _refuse_circles(by_id)
    for node in by_id.values():
        try:
            _check_place(node, by_id)
        except ParameterError as error:
            where = f"message {shorten(node.id)}: {error.parameter}"
            raise ParameterError(where, error.value, error.allowed) from error
    for parent, child in chosen.items():
        if child not in by_id or by_id[child].parent != parent:
            raise ParameterError(f"chosen[{shorten(parent)}]", child, "the id of a message right below that one")
    return Tree(MappingProxyType(by_id), MappingProxyType(dict(chosen)), system, title)


def _check_place(node: Node, nodes: Mapping[str, Node]) -> None:
    """Refuse a message whose parent, role or references do not fit; no parents may go in a circle."""
    if node.parent is not None and node.parent not in nodes:
        raise ParameterError("parent", node.parent, "the id of a message of this conversation, or none")
    above = None if node.parent is None else nodes[node.parent].role
    if node.role not in _MAY_FOLLOW[above]:
        allowed = f"{', '.join(_MAY_FOLLOW[above])} {'at the top' if above is None else f'after the {above}'}"
        raise ParameterError("role", node.role, allowed)
    if node.call_id is not None and node.call_id not in _calls_above(node, nodes):
        raise ParameterError("call_id", node.call_id, "the id of a well-formed call in the answer above")
    if node.continues is not None:
        old = nodes.get(node.continues)
        if old is None or old.id == node.id or (old.parent, old.role) != (node.parent, node.role):
            raise ParameterError("continues", node.continues, "the id of another answer with the same parent")


def _calls_above(node: Node, nodes: Mapping[str, Node]) -> set[str]:
    """The ids of the calls that a tool's result at this place may answer."""
    at = node
    for _ in range(MOST_CALLS):
        assert at.parent is not None  # noqa: S101 - a tool's result is never at the top
        at = nodes[at.parent]
        if at.role != "tool":
            return {call.id for call in at.calls if call.problem is None}
    return set()


def _refuse_circles(nodes: Mapping[str, Node]) -> None:
    """Every message must lead up to a first one; each is walked over once."""
    sound: set[str] = set()
    for start in nodes:
        walked: dict[str, None] = {}
        at: str | None = start
        while at is not None and at in nodes and at not in sound:
            if at in walked:
                where = f"message {shorten(at)}: parent"
                raise ParameterError(where, nodes[at].parent, "the id of a message that is not below this one")
            walked[at] = None
            at = nodes[at].parent
        sound.update(walked)


def _later(ours: Node, theirs: Node) -> Node:
    pair = (ours, theirs)
    complete = [node for node in pair if node.state != "interrupted"]
    if len(complete) == 1:
        return complete[0]
    if not complete:
        return max(pair, key=lambda node: len(node.text) + len(node.reasoning))
    raise ParameterError("merge", ours.id, "ids that stand for the same message in both conversations")


def _without(chosen: Mapping[str | None, str], key: str) -> Mapping[str | None, str]:
    return MappingProxyType({parent: child for parent, child in chosen.items() if parent != key})
