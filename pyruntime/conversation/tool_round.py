"""Running the calls of one answer: asked about, run side by side, and told as they happen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from pyruntime.chat.tree import Call, NodeState
from pyruntime.conversation.events import ApprovalNeeded, ToolStarted
from pyruntime.errors import ParameterError
from pyruntime.tools import ToolRegistry
from pyruntime.tools.registry import LONGEST_RESULT

DENIED = "The user did not allow this call."


@dataclass(frozen=True)
class Result:
    """What came of a call: "done", "cancelled" when it was denied, "error" when the tool failed."""

    call: Call
    text: str
    state: NodeState


class ToolRound:
    """The calls of one answer.

    Args:
        tools: run them.
        calls: faultless calls of these tools.
    """

    def __init__(self, tools: ToolRegistry, calls: Sequence[Call]) -> None:
        self._tools, self._calls = tools, calls
        self._answers: dict[str, asyncio.Future[bool]] = {}
        self._told: asyncio.Queue[ApprovalNeeded | ToolStarted | Result | None] = asyncio.Queue()

    def decide(self, call_id: str, *, allowed: bool) -> None:
        """What the person says about a call that waits for it; ParameterError if none of that id does."""
        answer = self._answers.pop(call_id, None)
        if answer is None or answer.done():
            raise ParameterError("call", call_id, "the id of a call that waits for approval")
        answer.set_result(allowed)

    def stop(self) -> None:
        """End the round: what still waits or runs is given up."""
        self._told.put_nowait(None)

    async def run(self) -> AsyncGenerator[ApprovalNeeded | ToolStarted | Result, None]:
        """What happens, as it happens; after `stop` nothing more."""
        # Asked about before anything runs, so that every question can be answered as soon as it is seen.
        for call in self._calls:
            if self._tools.needs_approval(call.name):
                self._answers[call.id] = asyncio.get_running_loop().create_future()
        tasks = [asyncio.ensure_future(self._one(call)) for call in self._calls]
        try:
            missing = len(tasks)
            while missing:
                event = await self._told.get()
                if event is None:
                    return
                missing -= isinstance(event, Result)
                yield event
        finally:
            # Not waited for: a tool that takes its time to stop must not hold up the person who said stop.
            for task in tasks:
                task.cancel()

    async def _one(self, call: Call) -> None:
        answer = self._answers.get(call.id)
        if answer is not None:
            self._told.put_nowait(ApprovalNeeded(call))
            if not await answer:
                self._told.put_nowait(Result(call, DENIED, "cancelled"))
                return
        self._told.put_nowait(ToolStarted(call))
        try:
            result = Result(call, await self._tools.run(call.name, json.loads(call.arguments)), "done")
        except asyncio.CancelledError:
            self._told.put_nowait(Result(call, "The tool was cancelled.", "error"))
            raise
        except Exception as error:  # noqa: BLE001 - a tool may fail in any way, and the model is told how
            result = Result(call, f"{type(error).__name__}: {error}"[:LONGEST_RESULT], "error")
        self._told.put_nowait(result)
