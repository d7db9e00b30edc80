"""The one place where messages given by a caller become the plain values a template may read.

A message is a mapping with a `role`, a `content` (text, or a list of parts) and, where the template wants them, the
other fields of the chat format. Values are copied, so a template that changes its inputs changes nothing of the
caller's; fields that the chat format does not have are dropped, as are fields whose value is None. Reasoning may come
under any of its three names and is offered under those that templates read. Nothing here knows templates.

Reference: `transformers.PreTrainedTokenizerBase.apply_chat_template` drops None and copies reasoning alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyruntime.errors import ParameterError
from pyruntime.text.normalize import replace_lone_surrogates

Message = Mapping[str, Any]

# Roles are words that templates compare with; any other role is text like any other text.
KNOWN_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})

# The names under which templates read an assistant's thinking.
REASONING = ("reasoning_content", "thinking", "reasoning")
_FIELDS = ("role", "content", *REASONING, "tool_calls", "tool_call_id", "name", "prefix")
_DEEPEST = 64


def normalise(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Copies of the messages with only the fields of the chat format that are set.

    Raises:
        ParameterError: not a sequence of mappings, no message at all, or a role or content of the wrong type.
    """
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):
        raise ParameterError("messages", messages, "a list of {'role': …, 'content': …}")
    if not messages:
        raise ParameterError("messages", messages, "at least one message")
    return [_normalise_one(f"messages[{index}]", message) for index, message in enumerate(messages)]


def _normalise_one(where: str, message: Message) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise ParameterError(where, message, "a mapping with 'role' and 'content'")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise ParameterError(f"{where}.role", role, "a string such as " + ", ".join(sorted(KNOWN_ROLES)))
    _check_content(f"{where}.content", message.get("content"))
    copied = {
        key: copy_value(message[key], replace_lone_surrogates, f"{where}.{key}") for key in message if key in _FIELDS
    }
    set_fields = {key: value for key, value in copied.items() if value is not None}
    reasoning = next((set_fields[key] for key in REASONING if key in set_fields), None)
    if reasoning is None:
        return set_fields
    return {"thinking": reasoning, **set_fields, "reasoning_content": reasoning}


def _check_content(where: str, content: object) -> None:
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list | tuple) or not all(isinstance(part, Mapping) for part in content):
        raise ParameterError(where, content, "a string, or a list of parts such as {'type': 'text', 'text': …}")


def move_inline_thinking(messages: Sequence[Message], tags: tuple[str, str] | None) -> list[Message]:
    """The messages, with thinking written into an assistant's content moved to where it belongs, `reasoning_content`.

    Other programs keep history as one text, `<think>…</think>answer`. Left there, it would reach the model as typed text
    that spells the tags, or make a template's own search for the tags miss them.

    Args:
        messages: as a caller gave them; they are not changed.
        tags: the model's opening and closing tag of thinking; None if it has none.
    """
    return [_without_inline_thinking(message, tags) if tags else message for message in messages]


def _without_inline_thinking(message: Message, tags: tuple[str, str]) -> Message:
    opening, closing = tags
    content = message.get("content") if isinstance(message, Mapping) and message.get("role") == "assistant" else None
    if not isinstance(content, str) or not content.lstrip().startswith(opening) or closing not in content:
        return message
    if any(message.get(name) is not None for name in REASONING):
        return message
    thinking, answer = content.lstrip().removeprefix(opening).split(closing, 1)
    return {**message, "content": answer.lstrip("\n"), "reasoning_content": thinking.strip("\n")}


def copy_value(value: Any, change: Callable[[str], str], where: str, depth: int = 0) -> Any:
    """A deep copy of JSON-like data with `change` applied to every string in it, dictionary keys included.

    Raises:
        ParameterError: something that JSON does not have, or nesting deeper than 64.
    """
    if depth > _DEEPEST:
        raise ParameterError(where, "a nested value", f"at most {_DEEPEST} levels of nesting")
    if isinstance(value, str):
        return change(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        copied = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise ParameterError(where, key, "strings as keys")
            copied[change(key)] = copy_value(item, change, f"{where}.{key}", depth + 1)
        return copied
    if isinstance(value, list | tuple):
        return [copy_value(item, change, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    raise ParameterError(where, value, "strings, numbers, booleans, null, lists and mappings")
