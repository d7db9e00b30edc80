"""A conversation with a model: the tree of its messages, and the one request at a time that changes it.

    session = Session(engine)
    async for event in session.send("Hello!"):
        ...

Each request (`send`, `edit`, `regenerate`, `continue_answer`, `retry`) is an asynchronous generator of events that must be
read to its end or closed; closing it stops the answer as `cancel` does. Whatever happens, the tree stays whole and the engine
usable: an answer that was stopped or failed is kept as far as it came, and a request that could not even begin changes
nothing, so the person keeps the draft.

Ids and times come from the functions passed in. Nothing here knows pages or storage.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from pyruntime.chat.tree import Node, Role, Tree
from pyruntime.conversation.events import SessionEvent
from pyruntime.conversation.states import Machine, State, StateChanged
from pyruntime.conversation.turn import Host, Options, Plan, Turn
from pyruntime.errors import BusyError, ClosedError, ParameterError

if TYPE_CHECKING:
    from pyruntime.engine import Engine


def _new_id() -> str:
    return uuid.uuid4().hex


def _now() -> int:
    return time.time_ns() // 1_000_000


class Session:
    """One conversation on one engine.

    Args:
        engine: answers.
        tree: the conversation so far.
        options: what the person has set.
        queue: whether a request waits while another one runs, in order; otherwise it is refused.
        look_ahead: whether, after an answer, the part of the next prompt that is certain already is computed while nobody
            waits; the next request ends that.
        new_id: makes ids of messages.
        now: milliseconds since the epoch.

    Attributes:
        options: as given; what is put there counts from the next request on.
        queue: as given.
    """

    def __init__(
        self,
        engine: Engine,
        tree: Tree | None = None,
        options: Options | None = None,
        *,
        queue: bool = False,
        look_ahead: bool = False,
        new_id: Callable[[], str] = _new_id,
        now: Callable[[], int] = _now,
    ) -> None:
        self.options = options or Options()
        self.queue = queue
        self._look_ahead = look_ahead
        self._looking: asyncio.Task[None] | None = None
        self._host = Host(engine, new_id, now)
        self._tree = tree or Tree()
        self._machine = Machine()
        self._turn: Turn | None = None
        self._fitting: int | None = None  # turns in the last prompt, if not all were
        self._requests = 0  # running and in the queue
        self._is_closed = False

    @property
    def tree(self) -> Tree:
        """The conversation; while an answer is written, without that answer."""
        return self._turn.tree if self._turn else self._tree

    @property
    def state(self) -> State:
        """What the conversation is doing."""
        return self._machine.state

    @property
    def engine(self) -> Engine:
        """What answers."""
        return self._host.engine

    def snapshot(self) -> Tree:
        """The conversation with the answer being written, marked as interrupted: what to store against a crash or reload."""
        draft = self._turn.draft if self._turn else None
        return self.tree if draft is None or draft.is_empty else self.tree.add(draft.node("interrupted"))

    def change(self, tree: Tree) -> None:
        """Put another tree in place: a branch selected, another system prompt, another conversation.

        Raises:
            BusyError: a request is running or waits.
        """
        self._refuse_while_busy()
        self._tree = tree

    def use(self, engine: Engine) -> None:
        """Go on with another model; the whole history is rendered anew by its template when it is next asked.

        Raises:
            BusyError: a request is running or waits.
        """
        self._refuse_while_busy()
        self._host = replace(self._host, engine=engine)

    def send(self, text: str) -> AsyncGenerator[SessionEvent, None]:
        """Ask something behind the last message shown, and answer it.

        Raises:
            BusyError: a request is running on this engine, and `queue` is off.
            ClosedError: the session was closed.
            ParameterError, TemplateError, UnsupportedError: the template refuses the conversation or the tools.
            ContextOverflowError: the system prompt and this message alone do not fit.
            Exception: whatever the engine raises; what came of the answer is kept.
        """

        def plan(tree: Tree) -> Plan:
            node_id = self._host.new_id()
            asked = tree.ask(node_id, text, self._host.now())
            return Plan(tree, asked, asked, added=node_id)

        return self._request(plan)

    def edit(self, message: str, text: str) -> AsyncGenerator[SessionEvent, None]:
        """Put a message of the user in other words, as a branch, and answer that.

        Raises:
            ParameterError: there is no such message of the user.
            As `send`.
        """

        def plan(tree: Tree) -> Plan:
            _need(tree, message, "user")
            node_id = self._host.new_id()
            edited = tree.edit(message, node_id, text, self._host.now())
            return Plan(tree, edited, edited, added=node_id)

        return self._request(plan)

    def regenerate(self, answer: str) -> AsyncGenerator[SessionEvent, None]:
        """Answer again, as a branch beside an answer.

        Raises:
            ParameterError: there is no such answer.
            As `send`.
        """

        def plan(tree: Tree) -> Plan:
            _need(tree, answer, "assistant")
            return Plan(tree, tree.before(answer), tree)

        return self._request(plan)

    def continue_answer(self, answer: str) -> AsyncGenerator[SessionEvent, None]:
        """Go on with an answer where it ends: the new one beside it begins with its whole text.

        Raises:
            ParameterError: there is no such answer, it has no text or thinking, or it ended with calls.
            As `send`.
        """

        def plan(tree: Tree) -> Plan:
            base = _need(tree, answer, "assistant")
            if base.calls or not (base.text or base.reasoning):
                raise ParameterError("message", answer, "an answer with text and without calls")
            return Plan(tree, tree.before(answer), tree, base=base)

        return self._request(plan)

    def retry(self, result: str) -> AsyncGenerator[SessionEvent, None]:
        """Run a call again, as a branch beside its result, and let the model go on; the other results stay.

        Raises:
            ParameterError: there is no such result, or its tool is no longer there.
            As `send`.
        """

        def plan(tree: Tree) -> Plan:
            node = _need(tree, result, "tool")
            answer = next(one for one in reversed(tree.ancestors(node.parent)) if one.role == "assistant")
            call = next(one for one in answer.calls if one.id == node.call_id)
            problem = self.options.tools.fault(call.name, json.loads(call.arguments))
            if problem:
                raise ParameterError("call", call.id, "a call of a tool that is there", advice=problem)
            behind = tree.select(result).path[len(tree.ancestors(result)) :]
            others = tuple(takewhile(lambda one: one.role == "tool", behind))
            return Plan(tree, tree.before(result), tree, calls=(call,), others=others)

        return self._request(plan)

    def cancel(self) -> None:
        """Stop the request that is running, at whatever it is doing. Nothing runs: nothing happens."""
        if self._turn is not None:
            self._turn.cancel()

    def approve(self, call_id: str) -> None:
        """Let a call be run; ParameterError if it does not wait for that."""
        self._decide(call_id, allowed=True)

    def deny(self, call_id: str) -> None:
        """Do not let a call be run, and tell the model so; ParameterError if it does not wait for that."""
        self._decide(call_id, allowed=False)

    def close(self) -> None:
        """Stop what is running and take no more requests, those in the queue included."""
        self._is_closed = True
        self.cancel()

    async def rest(self) -> None:
        """Wait until nothing is computed ahead any more."""
        if self._looking is not None and not self._looking.done():
            await asyncio.wait([self._looking])

    async def _request(self, plan: Callable[[Tree], Plan]) -> AsyncGenerator[SessionEvent, None]:
        self._refuse_if_closed()
        turns = self._host.engine.turns
        if not (self.queue or turns.is_free):
            raise BusyError("conversation: an answer is being written. Wait for it to finish, or stop it first")
        self._requests += 1
        try:
            await turns.take()
            try:
                self._refuse_if_closed()
                self._turn = Turn(self._host, self.options, self._machine, plan(self._tree), fitting=self._fitting)
                failure = None
                try:
                    async with aclosing(self._turn.run()) as events:
                        async for event in events:
                            yield event
                except Exception as error:  # noqa: BLE001 - raised again, when the conversation is at rest
                    failure = error
                if self._look_ahead and failure is None:
                    self._looking = asyncio.ensure_future(_compute_ahead(self._turn))
            finally:
                ended = self._end()
                turns.give_back()
        finally:
            self._requests -= 1
        if ended:
            yield ended
        if failure:
            raise failure

    def _end(self) -> StateChanged | None:
        """Take over what the turn leaves, and rest."""
        if self._turn is not None:
            self._tree, self._fitting, self._turn = self._turn.tree, self._turn.fitting, None
        return None if self.state == State.IDLE else self._machine.move(State.IDLE)

    def _decide(self, call_id: str, *, allowed: bool) -> None:
        calls = self._turn.round if self._turn else None
        if calls is None:
            raise ParameterError("call", call_id, "the id of a call that waits for approval")
        calls.decide(call_id, allowed=allowed)

    def _refuse_while_busy(self) -> None:
        if self._requests:
            raise BusyError("conversation: an answer is being written. Wait for it to finish, or stop it first")

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise ClosedError("conversation: it was closed. Open it again")


async def _compute_ahead(turn: Turn) -> None:
    """Prefill what is certain of the prompt behind a turn; an answer that is asked for meanwhile goes first."""
    with suppress(Exception):  # the next request will say what is wrong
        await turn.engine.prefill(turn.next_prompt())


def _need(tree: Tree, node_id: str, role: Role) -> Node:
    node = tree.node(node_id)
    if node.role != role:
        raise ParameterError("message", node_id, f"a message of the {role}")
    return node
