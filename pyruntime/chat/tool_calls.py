"""A tool call as the model wrote it: exactly as its template writes calls, or a named fault. Nothing is repaired.

How a template writes calls is told by one of three bodies; `call_probe` finds out which. Control tokens inside a call stand in
its text as one character each that decoded text never has. Nothing here runs tools or knows tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.errors import FormatError
from pyruntime.formats.strict_json import depth_of, strict_decoder

# Name of a tool → JSON Schema of its arguments.
Schemas = Mapping[str, Mapping[str, Any]]

_DEEPEST = 64
_LONGEST = 1_000_000  # characters
# What templates write of values that are no text: as JSON has them, and as Python prints them.
_PRINTED = {"True": True, "False": False, "None": None}


@dataclass(frozen=True)
class ToolCall:
    """A complete and valid call.

    Attributes:
        name: one of the tools that were offered.
        arguments: plain JSON data.
        raw: the text it was read from.
    """

    name: str
    arguments: dict[str, Any]
    raw: str


@dataclass(frozen=True)
class InvalidToolCall:
    """A call that must not be run: what is wrong with it, and the text as it came."""

    problem: str
    raw: str


@dataclass(frozen=True)
class JsonBody:
    """A call is a JSON object, or all calls are one list of them.

    Attributes:
        name: the key of the tool's name.
        arguments: the key of the arguments.
        is_list: whether there is a list around the calls.
    """

    name: str = "name"
    arguments: str = "arguments"
    is_list: bool = False


@dataclass(frozen=True)
class NamedBody:
    """A call is the tool's name and then its arguments as one JSON object.

    Attributes:
        lead: written before the name.
        middle: between name and arguments; where it may differ from call to call, in several pieces with anything between.
        tail: behind the arguments.
    """

    lead: str
    middle: tuple[str, ...]
    tail: str


@dataclass(frozen=True)
class FieldBody:
    """A call is the tool's name and then each argument with its own name; a value that is no text is written as JSON.

    Attributes:
        lead: written before the name.
        header: behind it, if anything is.
        key_start, key_end, value_end: before each argument's name, between it and the value, and behind the value.
        footer: behind the last argument.
    """

    lead: str
    header: str
    key_start: str
    key_end: str
    value_end: str
    footer: str


Body = JsonBody | NamedBody | FieldBody


def parse_calls(text: str, body: Body, tools: Schemas, raw: str | None = None) -> list[ToolCall | InvalidToolCall]:
    """The calls in the text between the marks of a call; at least one, valid or not.

    Args:
        text: what stands there.
        body: how the model's template writes calls.
        tools: the tools that were offered.
        raw: the text to show, where it is another.
    """
    raw = text if raw is None else raw
    try:
        found = _read(text.strip(), body, tools)
    except FaultError as fault:
        return [InvalidToolCall(str(fault), raw)]
    return [_checked(name, arguments, tools, raw) for name, arguments in found]


def tool_schemas(tools: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Names and arguments in descriptions of tools, bare (`{"name": …}`) or wrapped (`{"function": {"name": …}}`)."""
    found: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        bare = tool.get("function", tool)
        if isinstance(bare, Mapping) and isinstance(bare.get("name"), str):
            schema = bare.get("parameters")
            found[bare["name"]] = schema if isinstance(schema, Mapping) else {}
    return found


class FaultError(Exception):
    """Why a call is not valid."""


def _checked(name: object, arguments: object, tools: Schemas, raw: str) -> ToolCall | InvalidToolCall:
    if not isinstance(name, str) or not name:
        return InvalidToolCall("no name", raw)
    if not isinstance(arguments, dict):
        return InvalidToolCall("arguments must be an object", raw)
    if name not in tools:
        return InvalidToolCall(f"unknown tool {name!r}", raw)
    return ToolCall(name, arguments, raw)


def _read(text: str, body: Body, tools: Schemas) -> list[tuple[object, object]]:
    if not text:
        raise FaultError("empty call")
    if len(text) > _LONGEST:
        raise FaultError("too long")
    if isinstance(body, JsonBody):
        return _read_objects(text, body)
    reading = _Reading(text)
    reading.expect(body.lead)
    return [_read_named(reading, body) if isinstance(body, NamedBody) else _read_fields(reading, body, tools)]


def _read_objects(text: str, body: JsonBody) -> list[tuple[object, object]]:
    value, end = read_json(text)
    if text[end:].strip():
        raise FaultError("text after the object")
    values = value if body.is_list and isinstance(value, list) else [value]
    if not values or not all(isinstance(one, dict) for one in values):
        raise FaultError("not an object")
    return [(one.get(body.name), one.get(body.arguments, {})) for one in values]


def _read_named(reading: _Reading, body: NamedBody) -> tuple[object, object]:
    name = reading.until(body.middle[0]).strip()
    for piece in body.middle[1:]:
        reading.until(piece)
    arguments = reading.json()
    reading.expect(body.tail)
    reading.end()
    return name, arguments


def _read_fields(reading: _Reading, body: FieldBody, tools: Schemas) -> tuple[object, object]:
    # Where nothing is written behind the name, it ends where the first argument begins.
    name = (reading.until(body.header) if body.header.strip() else reading.before(body.key_start)).strip()
    properties = tools.get(name, {}).get("properties", {})
    arguments: dict[str, Any] = {}
    while reading.skip(body.key_start):
        key = reading.until(body.key_end).strip()
        if key in arguments:
            raise FaultError(f"argument {key!r} occurs twice")
        text = reading.value(body.key_end, body.value_end)
        schema = properties.get(key, {}) if isinstance(properties, Mapping) else {}
        arguments[key] = _value(key, text, schema if isinstance(schema, Mapping) else {})
    reading.expect(body.footer)
    reading.end()
    return name, arguments


def _value(key: str, text: str, schema: Mapping[str, Any]) -> Any:
    """An argument written as text: text if it may be that, or else the value that the text stands for."""
    types = schema.get("type")
    types = (types,) if isinstance(types, str) else types or ()
    if "string" in types:
        return text
    if text in _PRINTED:
        return _PRINTED[text]
    try:
        value, end = read_json(text)
    except FaultError as fault:
        if types:
            raise FaultError(f"argument {key!r}: {fault}") from fault
        return text
    if text[end:].strip():
        if types:
            raise FaultError(f"argument {key!r}: text after the value")
        return text
    return value


def read_json(text: str) -> tuple[Any, int]:
    """The JSON value that a text begins with, and where it ends; FaultError if it does not begin with one."""
    if depth_of(text.encode("utf-8", "surrogatepass")) > _DEEPEST:
        raise FaultError("nesting too deep")
    try:
        return strict_decoder("tool call").raw_decode(text, len(text) - len(text.lstrip()))
    except FormatError as error:
        raise FaultError(f"invalid JSON ({error.field}: {error.problem})") from error
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise FaultError(f"invalid JSON ({reason})") from error


class _Reading:
    """A text read from its beginning, piece by piece; white space between the pieces does not count."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def skip(self, literal: str) -> bool:
        """Go over a literal, if it comes next."""
        start = self._past_space()
        literal = literal.strip()
        found = self._text.startswith(literal, start)
        if found:
            self._at = start + len(literal)
        return found

    def expect(self, literal: str) -> None:
        if not self.skip(literal):
            raise FaultError(f"{_shown(literal)} is missing")

    def until(self, literal: str) -> str:
        """The text up to a literal, which is gone over; white space at the literal's ends does not count."""
        wanted = literal.strip() or literal
        end = self._text.find(wanted, self._at)
        if end < 0:
            raise FaultError(f"{_shown(literal)} is missing")
        found, self._at = self._text[self._at : end], end + len(wanted)
        return found

    def before(self, literal: str) -> str:
        """The text up to a literal or the end, where reading goes on."""
        end = self._text.find(literal.strip(), self._at)
        end = len(self._text) if end < 0 else end
        found, self._at = self._text[self._at : end], end
        return found

    def value(self, before: str, behind: str) -> str:
        """The text up to `behind`, without the white space that belongs to the literals around it."""
        text = self.until(behind)
        text = text.removeprefix(before[len(before.rstrip()) :])
        return text.removesuffix(behind[: len(behind) - len(behind.lstrip())])

    def json(self) -> Any:
        """The JSON value that comes next."""
        value, length = read_json(self._text[self._at :])
        self._at += length
        return value

    def end(self) -> None:
        if self._past_space() < len(self._text):
            raise FaultError("text after the call")

    def _past_space(self) -> int:
        at = self._at
        while at < len(self._text) and self._text[at].isspace():
            at += 1
        return at


def _shown(literal: str) -> str:
    return repr("".join(c if c.isprintable() else "…" for c in literal.strip()))
