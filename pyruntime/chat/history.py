"""From the messages of a conversation to what a template is given: one message each, in order.

What a model must not be told as if it were its own is left out here: malformed calls, and calls that nothing answered.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyruntime.chat.tree import Call, Node


def as_messages(
    path: Sequence[Node], system: str | None = None, *, arguments_as_text: bool = False
) -> list[dict[str, Any]]:
    """The system prompt, if there is one, and then a message for every node of the path.

    Args:
        path: messages from the first to the last.
        system: the system prompt.
        arguments_as_text: whether the template wants a call's arguments as JSON text and not as an object.
    """
    messages: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
    for index, node in enumerate(path):
        message: dict[str, Any] = {"role": node.role, "content": node.text}
        if node.reasoning:
            message["reasoning_content"] = node.reasoning
        answered = _answered(path, index)
        calls = [call for call in node.calls if call.problem is None and call.id in answered]
        if calls:
            message["tool_calls"] = [_call(call, arguments_as_text) for call in calls]
        if node.call_id is not None:
            message["tool_call_id"] = node.call_id
            message["name"] = _tool_name(path, index)
        messages.append(message)
    return messages


def _answered(path: Sequence[Node], index: int) -> set[str]:
    """The ids of the calls that the results right behind `index` answer."""
    found = set()
    for node in path[index + 1 :]:
        if node.call_id is None:
            break
        found.add(node.call_id)
    return found


def _call(call: Call, arguments_as_text: bool) -> dict[str, Any]:
    arguments = call.arguments if arguments_as_text else json.loads(call.arguments)
    return {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": arguments}}


def _tool_name(path: Sequence[Node], index: int) -> str:
    calls = next(node.calls for node in reversed(path[:index]) if node.role == "assistant")
    return next(call.name for call in calls if call.id == path[index].call_id)
