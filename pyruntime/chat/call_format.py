"""How a model marks the calls in its answers, read off its template.

The template is rendered with an answer that calls for known tools with known arguments. What stands around the known words is
how this model writes calls: by which control token or text a call begins and ends, and what is inside. So no model's name and no
token is written here, and a template that writes calls in another way needs no change, as long as it is one of the three ways of
`tool_calls`; of others the model is taken to have no calls.

A template may also only describe to the model how to write a call, as the JSON object between two control tokens in its
instructions; then that is taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pyruntime.chat.provenance import Segment
from pyruntime.chat.template import ChatTemplate
from pyruntime.chat.tool_calls import Body, FaultError, FieldBody, JsonBody, NamedBody, read_json
from pyruntime.errors import TemplateError

_QUESTION, _ANSWER = "questionprobe", "answerprobe"
_NAMES = ("firsttoolprobe", "secondtoolprobe")
_IDS = ("a1b2c3d4e", "z9y8x7w6v")  # unlike each other in every place; some templates demand nine letters and digits
_KEYS, _VALUES = ("firstkeyprobe", "secondkeyprobe"), ("firstvalueprobe", "secondvalueprobe")
_ARGUMENTS = dict(zip(_KEYS, _VALUES, strict=True))
_DESCRIPTION = {
    "type": "function",
    "function": {
        "name": "describedtoolprobe",
        "description": "descriptionprobe",
        "parameters": {
            "type": "object",
            "properties": {key: {"type": "string", "description": "descriptionprobe"} for key in _KEYS},
            "required": list(_KEYS),
        },
    },
}
# A control token stands in the text as half a surrogate pair, which neither templates nor decoded text have.
_STAND_INS = range(0xD800, 0xE000)


@dataclass(frozen=True)
class CallFormat:
    """How calls are told apart from the answer's text, and what is inside them.

    Attributes:
        body: what is inside.
        opening: the control id, or the text, by which a call begins; "" where the call is nothing but its body.
        closing: the control id, or the text, by which it ends; None where the next one begins or the answer ends.
        frame: control ids around calls, which are part of nothing.
        inner: control ids inside a call, each with the character that stands for it in the body's literals and its text.
        single: whether the template takes one call in an answer only.
        arguments_as_text: whether the template wants arguments as JSON text and not as an object.
    """

    body: Body
    opening: int | str
    closing: int | str | None
    frame: frozenset[int] = frozenset()
    inner: Mapping[int, tuple[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    single: bool = False
    arguments_as_text: bool = False


def find_call_format(template: ChatTemplate, control_ids: Mapping[str, int]) -> CallFormat | None:
    """How the model whose template this is writes calls; None if it does not, or in no way that is known here.

    Args:
        template: with its tokenizer.
        control_ids: text → id of the control tokens.
    """
    if "tool_calls" in template.source:
        for count in (len(_NAMES), 1):
            for as_text in (False, True):
                for tools in (None, [_DESCRIPTION]):
                    shown = _show(template, count, as_text=as_text, tools=tools)
                    if shown is not None:
                        return _format(shown, control_ids, single=count == 1, as_text=as_text)
    return _described(template, control_ids)


@dataclass(frozen=True)
class _Shown:
    """A rendering of calls: what stands behind the question, from where it differs from a plain answer.

    Attributes:
        text: with a stand-in for each control token.
        plain: the same of a plain answer.
        turn: the characters of a plain answer and of what stands before it, from the question on.
        names: the names of the calls in it.
        tokens: stand-in → control token.
    """

    text: str
    plain: str
    turn: frozenset[str]
    names: tuple[str, ...]
    tokens: Mapping[str, str]


@dataclass(frozen=True)
class _Parts:
    """The calls in a rendering: where each begins and ends, and how to make their body of what stands around them.

    Attributes:
        spans: start and end of each call, or of the list of them.
        body: makes the body of the literals before and behind a call, as far as they belong to it; None if they do not fit.
    """

    spans: tuple[tuple[int, int], ...]
    body: Callable[[str, str], Body | None]


def _show(
    template: ChatTemplate, count: int, *, as_text: bool, tools: Sequence[Mapping[str, Any]] | None
) -> _Shown | None:
    """The rendering, if the template makes one that shows every call once and in order."""
    arguments = json.dumps(_ARGUMENTS) if as_text else _ARGUMENTS
    calls = [
        {"type": "function", "id": call_id, "function": {"name": name, "arguments": arguments}}
        for name, call_id in zip(_NAMES[:count], _IDS, strict=False)
    ]
    calling = _segments(template, {"content": "", "tool_calls": calls}, tools)
    plain = _segments(template, {"content": _ANSWER}, tools)
    tokens = {segment.text for segment in (*calling, *plain) if segment.is_control}
    stand_ins = dict(zip(sorted(tokens), map(chr, _STAND_INS), strict=False))
    text, plain_text = (_behind_question(segments, stand_ins) for segments in (calling, plain))
    places = [text.find(name) for name in _NAMES[:count]]
    if min(places) < 0 or places != sorted(places) or any(text.count(name) != 1 for name in _NAMES[:count]):
        return None
    start = len(_common_prefix(text, plain_text))
    return _Shown(
        text[start:],
        plain_text[start:],
        frozenset(plain_text),
        _NAMES[:count],
        {mark: token for token, mark in stand_ins.items()},
    )


def _format(shown: _Shown, control_ids: Mapping[str, int], *, single: bool, as_text: bool) -> CallFormat | None:
    parts = _json_parts(shown) or _named_parts(shown) or _field_parts(shown)
    if parts is None:
        return None
    text, spans = shown.text, parts.spans
    before, behind = text[: spans[0][0]], _without_end(text[spans[-1][1] :], shown.plain)
    lead, tail = before, behind
    if len(spans) > 1:
        between = text[spans[0][1] : spans[1][0]]
        lead, tail = _common_suffix(before, between), _common_prefix(between, text[spans[-1][1] :])
        behind = behind[len(tail) :]
        before = before[: len(before) - len(lead)]
    else:
        before = behind = ""
    marks = shown.tokens.keys()
    if _words(before, marks) or _words(behind, marks):
        return None  # words around all calls, which would have to be kept out of the answer
    opening, inner_lead = _cut(lead, marks, at_end=False)
    closing, inner_tail = _cut(tail, marks, at_end=True)
    body = parts.body(inner_lead, inner_tail)
    if body is None or not _is_telling(opening, closing, body, single=single):
        return None
    inner = {mark for mark in marks if mark in inner_lead + inner_tail + _literals(body)}
    frame = {mark for mark in marks if mark in before + behind + lead + tail} - shown.turn
    frame -= inner | {opening, closing}

    def token_id(mark: str) -> int:
        return control_ids[shown.tokens[mark]]

    return CallFormat(
        body,
        token_id(opening) if opening in marks else opening,
        token_id(closing) if closing in marks else closing or None,
        frozenset(map(token_id, frame)),
        MappingProxyType({token_id(mark): (mark, shown.tokens[mark]) for mark in inner}),
        single=single,
        arguments_as_text=as_text,
    )


def _is_telling(opening: str, closing: str, body: Body, *, single: bool) -> bool:
    """Whether a call can be told from the text of an answer."""
    if opening:
        # One call alone does not tell what of the text before it belongs to the turn.
        return not single or ord(opening[0]) in _STAND_INS or isinstance(body, JsonBody)
    return isinstance(body, JsonBody) and not body.is_list and not closing


def _json_parts(shown: _Shown) -> _Parts | None:
    """Calls that are JSON objects."""
    spans, keys = [], set()
    for name in shown.names:
        place = shown.text.index(name)
        for start in (i for i in range(place) if shown.text[i] in "[{"):
            value, end = _json_at(shown.text, start)
            values = value if isinstance(value, list) else [value]
            found = {_keys(one, name) for one in values if isinstance(one, dict)} - {None}
            if found and end > place:
                spans.append((start, end))
                keys |= {(*pair, isinstance(value, list)) for pair in found if pair}
                break
    if len(spans) != len(shown.names) or len(keys) != 1:
        return None
    ((name_key, arguments_key, is_list),) = keys
    body = JsonBody(name_key, arguments_key, is_list)
    return _Parts(tuple(dict.fromkeys(spans)), lambda lead, tail: None if (lead + tail).strip() else body)


def _keys(value: dict[str, Any], name: str) -> tuple[str, str] | None:
    by_name = [key for key, item in value.items() if item == name]
    by_arguments = [key for key, item in value.items() if item == _ARGUMENTS]
    return (by_name[0], by_arguments[0]) if by_name and by_arguments else None


def _named_parts(shown: _Shown) -> _Parts | None:
    """Calls that are a name and then JSON."""
    text, spans, middles = shown.text, [], []
    for name, call_id in zip(shown.names, _IDS, strict=False):
        start = text.index(name)
        end = start + len(name)
        opening = next(
            (i for i in range(end, len(text)) if text[i] == "{" and _json_at(text, i)[0] == _ARGUMENTS), None
        )
        if opening is None:
            return None
        spans.append((start, _json_at(text, opening)[1]))
        middles.append(tuple(text[end:opening].split(call_id)))
    middle = middles[0]
    if len(set(middles)) > 1:
        whole = ["".join(pieces) for pieces in middles]
        middle = (_common_prefix(*whole), _common_suffix(*whole))
    if not all(middle):
        return None
    return _Parts(tuple(spans), lambda lead, tail: NamedBody(lead, middle, tail))


def _field_parts(shown: _Shown) -> _Parts | None:
    """Calls that are a name and then each argument with its own."""
    text, spans = shown.text, []
    for name in shown.names:
        start = text.index(name)
        places = [start + len(name)]
        for word in (word for pair in zip(_KEYS, _VALUES, strict=True) for word in pair):
            found = text.find(word, places[-1])
            if found < 0:
                return None
            places += [found, found + len(word)]
        spans.append((start, places[-1]))
    # name·header·key_start·KEY·key_end·VALUE·value_end·key_start·KEY·key_end·VALUE
    first, key_end, between, second_key_end = (text[places[i] : places[i + 1]] for i in (0, 2, 4, 6))
    key_start = _common_suffix(first, between)
    # What ends the value before it may end alike: an argument's own mark begins at its last bracket or control token.
    begins = max((i for i, c in enumerate(key_start) if c in "<[{" or ord(c) in _STAND_INS), default=0)
    key_start = key_start[begins:]
    header, value_end = first[: len(first) - len(key_start)], between[: len(between) - len(key_start)]
    if key_end != second_key_end or not (key_start.strip() and key_end.strip() and value_end.strip()):
        return None

    def body(lead: str, tail: str) -> Body | None:
        if not tail.startswith(value_end):
            return None
        return FieldBody(lead, header, key_start, key_end, value_end, tail[len(value_end) :])

    return _Parts(tuple(spans), body)


def _described(template: ChatTemplate, control_ids: Mapping[str, int]) -> CallFormat | None:
    """The JSON object between two control tokens by which the instructions for the model describe a call."""
    default = JsonBody()
    segments = _segments(template, None, [_DESCRIPTION])
    for before, text, behind in zip(segments, segments[1:], segments[2:], strict=False):
        words = text.text.strip()
        shows_keys = all(f'"{key}":' in words for key in (default.name, default.arguments))
        if before.is_control and behind.is_control and words.startswith("{") and words.endswith("}") and shows_keys:
            return CallFormat(default, control_ids[before.text], control_ids[behind.text])
    return None


def _segments(
    template: ChatTemplate, answer: Mapping[str, Any] | None, tools: Sequence[Mapping[str, Any]] | None
) -> Sequence[Segment]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": _QUESTION}]
    if answer is not None:
        messages.append({"role": "assistant", **answer})
    try:
        return template.prompt(messages, tools).segments
    except TemplateError:
        return ()


def _behind_question(segments: Sequence[Segment], stand_ins: Mapping[str, str]) -> str:
    text = "".join(stand_ins[segment.text] if segment.is_control else segment.text for segment in segments)
    return text.rpartition(_QUESTION)[2]


def _json_at(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins at `start` and where it ends; (None, start) if none does."""
    try:
        value, length = read_json(text[start:])
    except FaultError:
        return None, start
    return value, start + length


def _without_end(text: str, plain: str) -> str:
    """`text` without the end that a plain answer has as well."""
    return text[: len(text) - len(_common_suffix(text, plain))]


def _common_prefix(one: str, other: str) -> str:
    length = next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    return one[:length] if length is not None else min(one, other, key=len)


def _common_suffix(one: str, other: str) -> str:
    return _common_prefix(one[::-1], other[::-1])[::-1]


def _words(text: str, marks: Collection[str]) -> str:
    """`text` without stand-ins and white space."""
    return "".join(c for c in text if c not in marks).strip()


def _cut(literal: str, marks: Collection[str], *, at_end: bool) -> tuple[str, str]:
    """The mark that begins what stands before a call, or ends what stands behind it, and the rest, which belongs to the call.

    A control token is a mark; where there is none, the whole literal is.
    """
    place = next((i for i, c in enumerate(literal) if c in marks), None)
    if place is None:
        return literal.strip(), ""
    return literal[place], literal[:place] if at_end else literal[place + 1 :]


def _literals(body: Body) -> str:
    """All that a body has written in it."""
    match body:
        case NamedBody(lead, middle, tail):
            return "".join((lead, *middle, tail))
        case FieldBody():
            return body.lead + body.header + body.key_start + body.key_end + body.value_end + body.footer
        case JsonBody():
            return ""
