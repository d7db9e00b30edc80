"""A conversation as a JSON text and back, without loss; and its active path as Markdown.

The JSON is described by `docs/conversation.schema.json`. A file may come from anybody: it is bounded in size, every field is
checked, and a fault is told by message and field. Files of older versions are brought up to the current one by
`_UPGRADES`, one step at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pyruntime.chat.tree import LONGEST_ID, Call, Node, TextPart, Tree, checked
from pyruntime.errors import FormatError, ParameterError, shorten
from pyruntime.formats.strict_json import parse_json
from pyruntime.text.normalize import replace_lone_surrogates

FORMAT = "tinypylm-conversation"
VERSION = 1

# Version → what makes the next version's value of it.
_UPGRADES: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = MappingProxyType({})

_LARGEST = 64 * 2**20  # bytes
_DEEPEST = 80  # a call's arguments may be nested 64 deep
_MOST_VALUES = 2_000_000
_MOST_NODES = 50_000
_ADVICE = "Export the conversation again"

_TREE_FIELDS = ("format", "version", "title", "system", "nodes", "chosen")
_CALL_FIELDS = ("id", "name", "arguments", "raw", "problem")
# Field of a message → whether it must be there. The others are left out where they have their usual value.
_NODE_FIELDS = {
    "id": True,
    "parent": True,
    "role": True,
    "content": True,
    "created": True,
    "reasoning": False,
    "calls": False,
    "call_id": False,
    "state": False,
    "stop_reason": False,
    "continues": False,
    "model": False,
    "params": False,
    "usage": False,
    "timings": False,
}


def to_json(tree: Tree) -> str:
    """The whole conversation, every branch of it, as one JSON text in ASCII."""
    value = {
        "format": FORMAT,
        "version": VERSION,
        "title": tree.title,
        "system": tree.system,
        "nodes": [_node_value(node) for node in tree.nodes.values()],
        # JSON has no null as a key: what is chosen at the top comes as a pair like the others.
        "chosen": [[parent, child] for parent, child in tree.chosen.items()],
    }
    return json.dumps(value, indent=1, allow_nan=False)


def from_json(data: bytes, name: str = "conversation") -> Tree:
    """The conversation in a JSON text.

    Args:
        data: the text in UTF-8, at most 64 MiB.
        name: the file's name, as errors show it.

    Raises:
        FormatError: not such a text; the message names the message and field.
    """
    value = parse_json(data, name=name, max_bytes=_LARGEST, max_depth=_DEEPEST, max_values=_MOST_VALUES)
    read = _Reader(name)
    version = _version(value, read)
    while version < VERSION:
        value, version = _UPGRADES[version](value), version + 1
    fields = read.mapping("", value, _TREE_FIELDS)
    chosen: dict[str | None, str] = {}
    for index, pair in enumerate(read.sequence("chosen", fields.get("chosen"))):
        where = f"chosen[{index}]"
        if not isinstance(pair, list) or len(pair) != 2 or pair[0] in chosen:
            raise read.fault(
                where, pair, "a pair of a message's id or null and the id of the message below it, once each"
            )
        chosen[read.optional_text(where, pair[0])] = read.text(where, pair[1])
    values = read.sequence("nodes", fields.get("nodes"))
    if len(values) > _MOST_NODES:
        raise read.fault("nodes", f"a list of {len(values)}", f"at most {_MOST_NODES}")
    nodes = [_node(f"nodes[{i}]", node, read) for i, node in enumerate(values)]
    system, title = read.optional_text("system", fields.get("system")), read.text("title", fields.get("title", ""))
    try:
        return checked(nodes, chosen, system, title)
    except ParameterError as error:
        raise read.fault(error.parameter, error.value, error.allowed) from error


def to_markdown(tree: Tree) -> str:
    """What is shown of the conversation, to be read by people; it cannot be read back."""
    blocks = [f"# {_one_line(tree.title) or 'Conversation'}"]
    if tree.system is not None:
        blocks += ["## System", tree.system]
    for node in tree.path:
        maker = f" ({_one_line(node.model)})" if node.model else ""
        blocks.append(f"## {node.role.capitalize()}{maker}")
        if node.reasoning:
            blocks += ["Thinking:", _fenced(node.reasoning)]
        if node.text:
            blocks.append(_fenced(node.text) if node.role == "tool" else node.text)
        for call in node.calls:
            about = f"Malformed call ({call.problem}):" if call.problem else f"Call of {_one_line(call.name)}:"
            blocks += [about, _fenced(call.raw if call.problem else call.arguments)]
        if node.state != "done":
            blocks.append(f"*({node.state})*")
    return replace_lone_surrogates("\n\n".join(blocks) + "\n")


def _node_value(node: Node) -> dict[str, Any]:
    value: dict[str, Any] = {
        "id": node.id,
        "parent": node.parent,
        "role": node.role,
        "content": [{"type": "text", "text": part.text} for part in node.content],
        "created": node.created,
    }
    if node.calls:
        value["calls"] = [{name: getattr(call, name) for name in _CALL_FIELDS} for call in node.calls]
    for name in ("reasoning", "call_id", "stop_reason", "continues", "model"):
        if getattr(node, name):
            value[name] = getattr(node, name)
    if node.state != "done":
        value["state"] = node.state
    for name in ("params", "usage", "timings"):
        if getattr(node, name):
            value[name] = dict(getattr(node, name))
    return value


def _version(value: Any, read: _Reader) -> int:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        found = value.get("format") if isinstance(value, dict) else value
        raise read.fault("format", found, FORMAT)
    version = read.integer("version", value.get("version"))
    if version != VERSION and version not in _UPGRADES:
        known = ", ".join(map(str, [*_UPGRADES, VERSION]))
        raise read.fault("version", version, known, advice="Open it with a newer version of this program")
    return version


def _node(where: str, value: Any, read: _Reader) -> Node:
    fields = read.mapping(where, value, tuple(_NODE_FIELDS))
    for name, needed in _NODE_FIELDS.items():
        if needed and name not in fields:
            raise read.fault(f"{where}.{name}", None, "a value")
    parts = read.sequence(f"{where}.content", fields["content"])
    calls = read.sequence(f"{where}.calls", fields.get("calls", []))
    texts = {
        name: read.optional_text(f"{where}.{name}", fields.get(name))
        for name in ("parent", "call_id", "stop_reason", "continues", "model")
    }
    try:
        return Node(
            id=read.text(f"{where}.id", fields["id"]),
            role=fields["role"],
            content=tuple(_part(f"{where}.content[{i}]", part, read) for i, part in enumerate(parts)),
            created=read.integer(f"{where}.created", fields["created"]),
            reasoning=read.text(f"{where}.reasoning", fields.get("reasoning", "")),
            calls=tuple(_call(f"{where}.calls[{i}]", call, read) for i, call in enumerate(calls)),
            state=fields.get("state", "done"),
            params=read.mapping(f"{where}.params", fields.get("params", {})),
            usage=read.numbers(f"{where}.usage", fields.get("usage", {}), whole=True),
            timings=read.numbers(f"{where}.timings", fields.get("timings", {}), whole=False),
            **texts,
        )
    except ParameterError as error:
        raise read.fault(f"{where}.{error.parameter}", error.value, error.allowed) from error


def _part(where: str, value: Any, read: _Reader) -> TextPart:
    fields = read.mapping(where, value, ("type", "text"))
    if fields.get("type") != "text":
        raise read.fault(f"{where}.type", fields.get("type"), "text")
    return TextPart(read.text(f"{where}.text", fields.get("text")))


def _call(where: str, value: Any, read: _Reader) -> Call:
    fields = read.mapping(where, value, _CALL_FIELDS)
    problem = read.optional_text(f"{where}.problem", fields.get("problem"))
    texts = {name: read.text(f"{where}.{name}", fields.get(name)) for name in ("id", "name", "arguments", "raw")}
    if not 0 < len(texts["id"]) <= LONGEST_ID:
        raise read.fault(f"{where}.id", texts["id"], f"a string of 1 to {LONGEST_ID} characters")
    if problem is None:
        read.arguments(f"{where}.arguments", texts["arguments"])
    return Call(**texts, problem=problem)


class _Reader:
    """Checks of one file's values; each names the place, the value and what is allowed.

    Args:
        name: the file's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def fault(self, where: str, value: object, allowed: str, advice: str = _ADVICE) -> FormatError:
        return FormatError(self._name, where, f"{shorten(value)} is not allowed", allowed=allowed, advice=advice)

    def text(self, where: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self.fault(where, value, "a string")
        return value

    def optional_text(self, where: str, value: Any) -> str | None:
        return None if value is None else self.text(where, value)

    def integer(self, where: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fault(where, value, "a whole number")
        return value

    def sequence(self, where: str, value: Any) -> Sequence[Any]:
        if not isinstance(value, list):
            raise self.fault(where, value, "a list")
        return value

    def mapping(self, where: str, value: Any, known: Sequence[str] | None = None) -> dict[str, Any]:
        """An object, of which all keys are `known` if that is given."""
        if not isinstance(value, dict):
            raise self.fault(where, value, "an object")
        for key in value:
            if known is not None and key not in known:
                raise self.fault(f"{where}.{shorten(key)}".lstrip("."), value[key], "no such field")
        return value

    def numbers(self, where: str, value: Any, *, whole: bool) -> dict[str, Any]:
        """An object of numbers, or of nulls where they need not be whole."""
        for key, number in self.mapping(where, value).items():
            is_number = isinstance(number, int if whole else int | float) and not isinstance(number, bool)
            if not is_number and (whole or number is not None):
                raise self.fault(f"{where}.{shorten(key)}", number, "a whole number" if whole else "a number or null")
        return dict(value)

    def arguments(self, where: str, text: str) -> None:
        """Refuse what is not JSON text of an object."""
        data = text.encode("utf-8", "surrogatepass")
        try:
            is_object = isinstance(parse_json(data, name="", max_bytes=_LARGEST, max_depth=_DEEPEST), dict)
        except FormatError as error:
            raise self.fault(where, text, "JSON text of an object") from error
        if not is_object:
            raise self.fault(where, text, "JSON text of an object")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _fenced(text: str) -> str:
    """The text as a block of code, whatever it holds."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
