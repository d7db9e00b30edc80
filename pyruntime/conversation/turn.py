"""One request from its prompt to its last word: the model's answer, the calls in it, and the answers after them.

A turn has the tree to itself while it runs. What it leaves behind is whole at every moment: messages are added when they are
complete, and a partial answer when the turn ends, by whatever way.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any

from pyruntime.chat.budget import default_reserve, fit
from pyruntime.chat.history import as_messages
from pyruntime.chat.tool_calls import InvalidToolCall, ToolCall
from pyruntime.chat.tree import Call, Node, NodeState, Tree, text_content
from pyruntime.conversation.draft import Draft
from pyruntime.conversation.events import MessageAdded, PromptFitted, SessionEvent, ToolEnded, ToolRoundsExhausted
from pyruntime.conversation.states import Machine, State, StateChanged
from pyruntime.conversation.tool_round import Result, ToolRound
from pyruntime.errors import UnsupportedError
from pyruntime.events import CallInvalid, CallReady, Delta, Event, Finished, ReasoningDelta, TokenScored
from pyruntime.sampling import SamplingParams
from pyruntime.tools import ToolRegistry

if TYPE_CHECKING:
    from pyruntime.chat.messages import Message
    from pyruntime.chat.template import ContinueFinal
    from pyruntime.engine import Engine

# Rounds of calls that one request may have: a model that never stops asking would run for ever.
MOST_TOOL_ROUNDS = 8

_PARTS = (Delta, ReasoningDelta, CallReady, CallInvalid, TokenScored)


@dataclass(frozen=True)
class Options:
    """What a person may set for a conversation.

    Attributes:
        params: how tokens are drawn.
        tools: what the model may ask for.
        template_kwargs: further variables of the template, such as `enable_thinking`.
        reserve: tokens kept for an answer; None for `default_reserve`.
    """

    params: SamplingParams = field(default_factory=SamplingParams)
    tools: ToolRegistry = field(default_factory=ToolRegistry)
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    reserve: int | None = None


@dataclass(frozen=True)
class Host:
    """What a conversation does not make itself.

    Attributes:
        engine: answers.
        new_id: makes ids of messages.
        now: milliseconds since the epoch.
    """

    engine: Engine
    new_id: Callable[[], str]
    now: Callable[[], int]


@dataclass(frozen=True)
class Plan:
    """What a turn is about.

    Attributes:
        original: the tree before the request: what it is again if the request cannot begin.
        tree: its path ends at the message to answer.
        fallback: what the tree becomes if no word of an answer is kept.
        added: id of the message that the request itself added.
        base: the answer to go on with.
        calls: calls to run before the model is asked.
        others: results that stand behind theirs already, to be copied.
    """

    original: Tree
    tree: Tree
    fallback: Tree
    added: str | None = None
    base: Node | None = None
    calls: tuple[Call, ...] = ()
    others: tuple[Node, ...] = ()


class Turn:
    """A request while it runs.

    Args:
        host: whose engine, ids and clock it uses.
        options: what it is run with.
        machine: the conversation's state.
        plan: what it is about.
        fitting: how many turns of the conversation fitted into the last prompt, if not all did.

    Attributes:
        tree: the conversation, without the answer being written.
        draft: the answer being written.
        fitting: as given, and then of the prompt of this turn.
    """

    def __init__(
        self, host: Host, options: Options, machine: Machine, plan: Plan, *, fitting: int | None = None
    ) -> None:
        self._host, self._options, self._machine, self._plan = host, options, machine, plan
        self.fitting = fitting
        self.tree = plan.tree
        self.draft: Draft | None = None
        self._round: ToolRound | None = None
        self._stopped = False
        self._has_begun = self._has_kept = False

    def cancel(self) -> None:
        """Stop at whatever it is doing."""
        self._stopped = True
        if self.draft is not None:
            self._host.engine.cancel()
        if self._round is not None:
            self._round.stop()

    @property
    def engine(self) -> Engine:
        """What answers."""
        return self._host.engine

    @property
    def round(self) -> ToolRound | None:
        """The calls being run."""
        return self._round

    async def run(self) -> AsyncGenerator[SessionEvent, None]:
        """What happens, up to COMPLETED, CANCELLED or FAILED; an exception comes after FAILED."""
        try:
            async with aclosing(self._rounds()) as events:
                async for event in events:
                    yield event
        except Exception:
            self._settle("error")
            yield self._machine.move(State.FAILED)
            raise
        except BaseException:
            # Whoever was listening has gone (closed the generator, cancelled the task, pressed Ctrl-C): nobody is told.
            self._settle("cancelled")
            self._machine.move(State.CANCELLED)
            raise
        self._settle("cancelled")
        yield self._machine.move(State.CANCELLED if self._is_cancelled() else State.COMPLETED)

    def _is_cancelled(self) -> bool:
        return self._stopped

    def _settle(self, state: NodeState) -> None:
        """Keep what came of an answer that has not ended by itself; without a word of it, go back."""
        if self.draft is not None and not self.draft.is_empty:
            self._add(self.draft.node(state))
        if not self._has_kept:
            can_begin = self._has_begun or state == "cancelled"
            self.tree = self._plan.fallback if can_begin else self._plan.original
        self.draft = None

    def _add(self, node: Node) -> MessageAdded:
        self.tree = self.tree.add(node)
        self._has_kept = True
        self.draft = None
        return MessageAdded(node.id)

    async def _rounds(self) -> AsyncGenerator[SessionEvent, None]:
        calls = self._plan.calls
        for number in count():
            if calls:
                if number > MOST_TOOL_ROUNDS:
                    yield ToolRoundsExhausted(MOST_TOOL_ROUNDS)
                    return
                yield self._machine.move(State.TOOL_CALL)
                if not self._is_cancelled():
                    async with aclosing(self._run_calls(calls)) as results:
                        async for event in results:
                            yield event
                if self._is_cancelled():
                    return
            async with aclosing(self._answer()) as events:
                async for event in events:
                    yield event
            calls = self._calls_to_run()
            if self._is_cancelled() or not calls:
                return

    async def _answer(self) -> AsyncGenerator[SessionEvent, None]:
        """One answer of the model, from the prompt to the message."""
        engine, options = self._host.engine, self._options
        base = None if self._has_kept else self._plan.base
        stopwatch = engine.stopwatch()
        yield self._machine.move(State.PREFILL)
        if self._plan.added and not self._has_kept:
            yield MessageAdded(self._plan.added)
        if self._is_cancelled():
            return
        prompt, fitted = self._prompt(base)
        yield fitted
        if self._is_cancelled():
            return
        self.draft = self._new_draft(base)
        answer = engine.answer(
            prompt,
            options.params,
            known_tools=options.tools.schemas,
            continues=base is not None,
            stopwatch=stopwatch,
        )
        async with aclosing(answer) as events:
            async for event in events:
                self._has_begun = True
                for told in self._taken(event, left_out=len(fitted.left_out)):
                    yield told

    def _taken(self, event: Event, *, left_out: int) -> Sequence[SessionEvent]:
        """What to tell of an event of the engine's."""
        draft, engine = self.draft, self._host.engine
        assert draft is not None  # noqa: S101 - the engine tells nothing behind its last event
        if self._is_cancelled():
            engine.cancel()  # it may have come before the engine had begun
        if isinstance(event, CallReady):
            problem = self._problem(event.call, draft)
            event = CallInvalid(InvalidToolCall(problem, event.call.raw)) if problem else event
        if isinstance(event, Finished):
            event = replace(event, usage=replace(event.usage, left_out=left_out))
        draft.take(event)
        if isinstance(event, Finished):
            return self._finished(event, draft)
        if not isinstance(event, _PARTS):
            return [event]
        # What comes behind a stop is late: the answer keeps it if it was held back, and nobody is told.
        return [] if self._is_cancelled() else [*self._entered(event), event]

    def _problem(self, call: ToolCall, draft: Draft) -> str | None:
        """Why a call cannot be run, or None."""
        calls = self._host.engine.model.marks.call
        if calls is not None and calls.single and any(one.problem is None for one in draft.calls):
            return "this model can be answered one call at a time only"
        return self._options.tools.fault(call.name, call.arguments)

    def _finished(self, event: Finished, draft: Draft) -> Sequence[SessionEvent]:
        if event.reason == "cancelled":
            self._stopped = True
            return [event] if draft.is_empty else [event, self._add(draft.node("cancelled"))]
        # An answer without a visible word has been in no state but PREFILL.
        moved = [self._machine.move(State.DECODE)] if self._machine.state == State.PREFILL else []
        return [*moved, event, self._add(draft.node("done"))]

    def _entered(self, part: Event) -> list[StateChanged]:
        if isinstance(part, TokenScored):
            return []  # whether its token is thinking is not told
        wanted = State.THINKING if isinstance(part, ReasoningDelta) else State.DECODE
        return [] if self._machine.state == wanted else [self._machine.move(wanted)]

    def _calls_to_run(self) -> tuple[Call, ...]:
        """The calls of the answer just added; none of one that was cut off, which may have had more to say."""
        leaf = self.tree.leaf
        if leaf is None or leaf.role != "assistant" or leaf.stop_reason != "stop":
            return ()
        return tuple(call for call in leaf.calls if call.problem is None)

    async def _run_calls(self, calls: Sequence[Call]) -> AsyncGenerator[SessionEvent, None]:
        """Run calls, and add their results in the order of the calls, each as soon as those before it are there."""
        self._round = ToolRound(self._options.tools, calls)
        results: dict[str, Result] = {}
        waiting = list(calls)
        async with aclosing(self._round.run()) as events:
            async for event in events:
                if not isinstance(event, Result):
                    if not self._is_cancelled():
                        yield event
                    continue
                results[event.call.id] = event
                while waiting and waiting[0].id in results:
                    yield self._add(self._result_node(results[waiting.pop(0).id]))
                if not self._is_cancelled():
                    yield ToolEnded(event.call, event.state)
        self._round = None
        # After a stop, what had come is not lost because something before it had not.
        for result in [results[call.id] for call in waiting if call.id in results]:
            yield self._add(self._result_node(result))
        for other in self._plan.others if results else ():
            leaf = self.tree.leaf
            yield self._add(replace(other, id=self._host.new_id(), parent=leaf.id if leaf else None))
        self._plan = replace(self._plan, others=())

    def _result_node(self, result: Result) -> Node:
        leaf = self.tree.leaf
        return Node(
            self._host.new_id(),
            leaf.id if leaf else None,
            "tool",
            text_content(result.text),
            self._host.now(),
            call_id=result.call.id,
            state=result.state,
        )

    def _new_draft(self, base: Node | None) -> Draft:
        host, leaf = self._host, self.tree.leaf
        # Unique in the tree, whatever ids a conversation from elsewhere has; nine letters and digits, as some templates demand.
        taken = {call.id for node in self.tree.nodes.values() for call in node.calls}
        free = (call_id for number in count(1) if (call_id := f"call{number:05d}") not in taken)
        return Draft(
            host.new_id(),
            leaf.id if leaf else None,
            host.now(),
            model=host.engine.model.name,
            params=self._options.params,
            base=base and self._as_prompted(base),
            new_call_id=lambda: next(free),
        )

    def _prompt(self, base: Node | None) -> tuple[list[int], PromptFitted]:
        """The prompt's ids, and what to tell of them."""
        options, engine = self._options, self._host.engine
        nodes = [*self.tree.path, base] if base else list(self.tree.path)
        calls = engine.model.marks.call
        messages = self._messages(nodes)
        tools = options.tools.descriptions()
        if tools and calls is None:
            problem = "it has no way of asking for tools"
            advice = "Switch the tools off, or choose another model"
            raise UnsupportedError(engine.model.file_name, "chat template", problem, advice=advice)

        def encode(kept: Sequence[Message]) -> list[int]:
            return engine.prompt(kept, tools, continue_final_message=_place(base), **options.template_kwargs)

        reserve = self._reserve()
        fitted = fit(messages, encode, context=engine.context, reserve=reserve, guess=self.fitting)
        self.fitting = fitted.turns if fitted.left_out else None
        first = len(messages) - len(nodes)
        left_out = tuple(nodes[place - first].id for place in fitted.left_out)
        return fitted.prompt, PromptFitted(len(fitted.prompt), reserve, left_out)

    def next_prompt(self) -> list[int]:
        """The ids with which the prompt of the next question will begin, whatever it is; empty if that is not certain.

        The conversation is rendered with two different questions: what both prompts begin with does not depend on them. If
        it does not fit with room for an answer, other turns will be left out, and nothing is certain.
        """
        if self.fitting is not None:
            return []
        asked = [
            self._host.engine.prompt(
                [*self._messages(self.tree.path), {"role": "user", "content": question}],
                self._options.tools.descriptions(),
                **self._options.template_kwargs,
            )
            for question in ("a", "b")
        ]
        shared = list(takewhile(lambda pair: pair[0] == pair[1], zip(*asked, strict=False)))
        fits = len(shared) + self._reserve() < self._host.engine.context
        return [token_id for token_id, _ in shared] if fits else []

    def _reserve(self) -> int:
        reserve = self._options.reserve
        return (
            default_reserve(self._host.engine.context, self._options.params.max_tokens) if reserve is None else reserve
        )

    def _messages(self, nodes: Sequence[Node]) -> list[dict[str, Any]]:
        calls = self._host.engine.model.marks.call
        return as_messages(nodes, self.tree.system, arguments_as_text=calls is not None and calls.arguments_as_text)

    def _as_prompted(self, base: Node) -> Node:
        """The answer to go on with, without the white space at its end if the template takes that away."""
        text = base.text or base.reasoning
        template = self._host.engine.model.template
        if text == text.rstrip() or template is None:
            return base
        rendered = template.render(
            self._messages([*self.tree.path, base]),
            self._options.tools.descriptions(),
            continue_final_message=_place(base),
            **self._options.template_kwargs,
        )
        if rendered.endswith(text):
            return base
        kept = text.rstrip()
        return replace(base, content=text_content(kept)) if base.text else replace(base, reasoning=kept)


def _place(base: Node | None) -> ContinueFinal:
    """Where the model is to go on: behind the content, or, of an answer that was cut off before it had any, its thinking."""
    if base is None:
        return False
    return True if base.text else "reasoning_content"
