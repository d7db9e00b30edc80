"""Messages as the API has them → messages as chat templates have them.

Contents in parts become one text, arguments of calls become what the model's template wants, results get the name of the function
they answer, and `developer` is `system` for a template that does not know the word. What a model here cannot take, an
image for example, is refused by its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyruntime.chat.messages import REASONING
from pyruntime.chat.tool_calls import FaultError, read_json
from pyruntime.errors import ParameterError, shorten
from pyruntime.openai.errors import unsupported
from pyruntime.openai.shapes import Shape

_FIELDS = {
    "system": {"content", "name"},
    "developer": {"content", "name"},
    "user": {"content", "name"},
    "assistant": {"content", "name", "tool_calls", *REASONING},
    "tool": {"content", "tool_call_id"},
}


def chat_messages(
    messages: Sequence[Mapping[str, Any] | Shape], *, arguments_as_text: bool, knows_developer: bool
) -> list[dict[str, Any]]:
    """The messages for a template.

    Args:
        messages: as the API has them; a message of an answer may be given back as it came.
        arguments_as_text: whether the template wants the arguments of calls as JSON text and not as an object.
        knows_developer: whether the template knows the role `developer`.

    Raises:
        ParameterError: a message is malformed.
        BadRequestError: a message has something that models here cannot be given.
    """
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise ParameterError("messages", messages, "a list of at least one message {'role': …, 'content': …}")
    tools: dict[str, str] = {}  # id of a call → its function
    found = []
    for index, given in enumerate(messages):
        where = f"messages[{index}]"
        message = given.model_dump() if isinstance(given, Shape) else given
        role = _role(where, message)
        one: dict[str, Any] = {key: message[key] for key in ("name", *REASONING) if message.get(key) is not None}
        one |= {"role": role, "content": _content(f"{where}.content", message)}
        if message.get("tool_calls"):
            one["tool_calls"] = _calls(f"{where}.tool_calls", message["tool_calls"], as_text=arguments_as_text)
            tools |= {call["id"]: call["function"]["name"] for call in one["tool_calls"]}
        if role == "tool":
            call_id = _string(f"{where}.tool_call_id", message.get("tool_call_id"))
            if call_id not in tools:
                raise ParameterError(f"{where}.tool_call_id", call_id, "the id of a call in an earlier message")
            one |= {"tool_call_id": call_id, "name": tools[call_id]}
        if role == "developer" and not knows_developer:
            one["role"] = "system"
        found.append(one)
    return found


def _role(where: str, message: object) -> str:
    if not isinstance(message, Mapping):
        raise ParameterError(where, message, "a mapping with 'role' and 'content'")
    role = message.get("role")
    if not isinstance(role, str) or role not in _FIELDS:
        raise ParameterError(f"{where}.role", role, ", ".join(_FIELDS))
    for key, value in message.items():
        # What an answer has and nothing is in may come back with it.
        if key != "role" and key not in _FIELDS[role] and value is not None and value != []:
            allowed = ", ".join(sorted(_FIELDS[role]))
            raise unsupported(f"{where}.{key}", "not supported here", allowed=allowed, code="unsupported_parameter")
    return role


def _content(where: str, message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is None and message["role"] == "assistant":
        return ""
    if not isinstance(content, list | tuple):
        raise ParameterError(where, content, "a string, or a list of parts {'type': 'text', 'text': …}")
    return "\n".join(_part(f"{where}[{index}]", part) for index, part in enumerate(content))


def _part(where: str, part: object) -> str:
    if not isinstance(part, Mapping):
        raise ParameterError(where, part, "{'type': 'text', 'text': …}")
    if part.get("type") != "text":
        problem = f"{shorten(part.get('type'))} cannot be given to the models of this runtime"
        raise unsupported(f"{where}.type", problem, allowed="'text'")
    return _string(f"{where}.text", part.get("text"))


def _calls(where: str, calls: object, *, as_text: bool) -> list[dict[str, Any]]:
    if not isinstance(calls, list | tuple):
        raise ParameterError(where, calls, "a list of calls")
    return [_call(f"{where}[{index}]", call, as_text=as_text) for index, call in enumerate(calls)]


def _call(where: str, call: object, *, as_text: bool) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or call.get("type") != "function" or not isinstance(function, Mapping):
        allowed = "{'id': …, 'type': 'function', 'function': {'name': …, 'arguments': JSON text}}"
        raise ParameterError(where, call, allowed)
    text = _string(f"{where}.function.arguments", function.get("arguments"))
    arguments = _object(f"{where}.function.arguments", text)
    name = _string(f"{where}.function.name", function.get("name"))
    return {
        "id": _string(f"{where}.id", call.get("id")),
        "type": "function",
        "function": {"name": name, "arguments": text if as_text else arguments},
    }


def _object(where: str, text: str) -> dict[str, Any]:
    try:
        value, end = read_json(text)
    except FaultError as fault:
        raise ParameterError(where, text, f"a JSON object as text: {fault}") from fault
    if not isinstance(value, dict) or text[end:].strip():
        raise ParameterError(where, text, "one JSON object as text")
    return value


def _string(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise ParameterError(where, value, "a string")
    return value
