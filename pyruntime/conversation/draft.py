"""The answer that is being written: what of it has come, and the message it becomes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pyruntime.chat.tool_calls import InvalidToolCall, ToolCall
from pyruntime.chat.tree import MOST_CALLS, Call, Node, NodeState, text_content
from pyruntime.events import CallInvalid, CallReady, Delta, Event, Finished, ReasoningDelta
from pyruntime.sampling import SamplingParams


class Draft:
    """Collects one answer.

    Args:
        node_id: id of the message it becomes.
        parent: id of the message it answers.
        created: milliseconds since the epoch.
        model: who writes it.
        params: how its tokens are drawn.
        base: the answer it goes on with.
        new_call_id: makes an id for each call.
    """

    def __init__(
        self,
        node_id: str,
        parent: str | None,
        created: int,
        *,
        model: str,
        params: SamplingParams,
        base: Node | None,
        new_call_id: Callable[[], str],
    ) -> None:
        self._node_id, self._parent, self._created = node_id, parent, created
        self._model, self._params, self._base = model, params, base
        self._new_call_id = new_call_id
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self.calls: list[Call] = []
        self.finished: Finished | None = None

    def take(self, event: Event) -> None:
        """Collect what an event brings."""
        match event:
            case Delta(text):
                self._text.append(text)
            case ReasoningDelta(text):
                self._reasoning.append(text)
            case CallReady(call) | CallInvalid(call):
                if len(self.calls) < MOST_CALLS:
                    self.calls.append(self._call(call))
            case Finished():
                # It has also what was held back and never told.
                self._text, self._reasoning, self.finished = [event.text], [event.reasoning], event
            case _:
                pass

    @property
    def is_empty(self) -> bool:
        """Whether nothing has come."""
        return not (any(self._text) or any(self._reasoning) or self.calls)

    def node(self, state: NodeState) -> Node:
        """The message, as far as it has come."""
        base, finished = self._base, self.finished
        return Node(
            self._node_id,
            self._parent,
            "assistant",
            text_content((base.text if base else "") + "".join(self._text)),
            self._created,
            reasoning=(base.reasoning if base else "") + "".join(self._reasoning),
            calls=tuple(self.calls),
            state=state,
            stop_reason=finished.reason if finished else None,
            continues=base.id if base else None,
            model=self._model,
            params=plain_params(self._params),
            usage=asdict(finished.usage) if finished else {},
            timings=asdict(finished.timings) if finished else {},
        )

    def _call(self, call: ToolCall | InvalidToolCall) -> Call:
        call_id = self._new_call_id()
        if isinstance(call, InvalidToolCall):
            return Call(call_id, "", "", call.raw, call.problem)
        if len(self.calls) == MOST_CALLS - 1:
            return Call(call_id, "", "", call.raw, f"more than {MOST_CALLS - 1} calls in one answer")
        return Call(call_id, call.name, json.dumps(call.arguments, ensure_ascii=False), call.raw)


def plain_params(params: SamplingParams) -> dict[str, Any]:
    """The parameters as JSON has them."""
    plain = asdict(params)
    plain["stop"] = list(params.stop)
    plain["logit_bias"] = {str(token_id): bias for token_id, bias in params.logit_bias.items()}
    return plain
