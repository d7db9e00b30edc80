"""A tool call as the model wrote it: one strict JSON object, or a named fault. Nothing is repaired.

Nothing here runs tools or knows tokens.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.errors import FormatError
from pyruntime.formats.strict_json import depth_of, strict_decoder

_DEEPEST = 64
_LONGEST = 1_000_000  # characters


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


def parse_tool_call(raw: str, known_tools: Collection[str]) -> ToolCall | InvalidToolCall:
    """The call in `raw`, the text between the marks of a call.

    Args:
        raw: JSON text of an object with `name` and, if it takes any, `arguments`.
        known_tools: names of the tools that were offered to the model.
    """
    try:
        return ToolCall(*_read(raw.strip(), known_tools), raw)
    except _FaultError as fault:
        return InvalidToolCall(str(fault), raw)


def tool_names(tools: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The names in descriptions of tools, bare (`{"name": …}`) or wrapped (`{"function": {"name": …}}`)."""
    bare = [tool.get("function", tool) for tool in tools]
    names = [tool.get("name") for tool in bare if isinstance(tool, Mapping)]
    return frozenset(name for name in names if isinstance(name, str))


class _FaultError(Exception):
    """Why a call is not valid."""


def _read(text: str, known_tools: Collection[str]) -> tuple[str, dict[str, Any]]:
    value = _read_object(text)
    name, arguments = value.get("name"), value.get("arguments", {})
    if not isinstance(name, str) or not name:
        raise _FaultError("no name")
    if not isinstance(arguments, dict):
        raise _FaultError("arguments must be an object")
    if name not in known_tools:
        raise _FaultError(f"unknown tool {name!r}")
    return name, arguments


def _read_object(text: str) -> dict[str, Any]:
    if not text:
        raise _FaultError("empty call")
    if len(text) > _LONGEST:
        raise _FaultError("too long")
    if depth_of(text.encode("utf-8", "surrogatepass")) > _DEEPEST:
        raise _FaultError("nesting too deep")
    try:
        value, end = strict_decoder("tool call").raw_decode(text)
    except FormatError as error:
        raise _FaultError(f"invalid JSON ({error.field}: {error.problem})") from error
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise _FaultError(f"invalid JSON ({reason})") from error
    if text[end:].strip():
        raise _FaultError("text after the object")
    if not isinstance(value, dict):
        raise _FaultError("not an object")
    return value
