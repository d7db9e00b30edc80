"""Which part of a rendered prompt came from the template, and which from somebody's text.

A control token may come only from the template. Text that merely looks like one (typed by a user, returned by a
tool, pasted into a system prompt) must stay text. The rendered prompt is one flat string, so the difference has to
be carried through the template engine: before rendering, every untrusted string gets a *mark* (one character that
occurs nowhere in the template or the inputs) after each character that can begin a control token. In the rendered
text an unbroken control token is therefore the template's; a broken one is somebody's text, and becomes exactly that
text again when the marks are taken out.

Two kinds of template need more. Some build a control token around a string (`'<' ~ key ~ '>'`): strings that could
continue what a literal of the template begins are broken too. Some could take a string apart (reverse it, filter its
characters) so that marks get lost: the same prompt is rendered with *harmless* inputs, in which no character begins a
control token, and both renderings must have the same control tokens in the same order.

Nothing here knows minijinja or token ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.chat.messages import KNOWN_ROLES, copy_value
from pyruntime.errors import TemplateError

# Assigned, printable and caseless characters (CJK Extension B), so that a template's `repr`, `upper` or `title` leaves
# a mark as it is. Private-use characters would be escaped by `repr`.
_MARK_RANGE = range(0x20000, 0x2A6D0)

# Keys of the chat format and of JSON Schema: templates look them up by name, so they are never marked.
_KNOWN_KEYS = frozenset(
    [
        "$defs",
        "$ref",
        "additionalProperties",
        "allOf",
        "anyOf",
        "arguments",
        "const",
        "content",
        "default",
        "description",
        "enum",
        "examples",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "function",
        "id",
        "items",
        "maxItems",
        "maxLength",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "multipleOf",
        "name",
        "not",
        "nullable",
        "oneOf",
        "parameters",
        "pattern",
        "properties",
        "reasoning",
        "reasoning_content",
        "required",
        "return",
        "role",
        "strict",
        "text",
        "thinking",
        "title",
        "tool_call_id",
        "tool_calls",
        "type",
        "uniqueItems",
        "url",
    ]
)

Change = Callable[[str], str]


@dataclass(frozen=True)
class Segment:
    """A piece of a rendered prompt: one control token of the template, or a run of ordinary text."""

    text: str
    is_control: bool


class ControlTokens:
    """The control tokens of a model beside what its template writes; made once for all renders.

    Args:
        tokens: the texts of the control tokens.
        literals: the texts that the template writes or may build upon.

    Attributes:
        token: matches a control token, the longest of those that begin at a place.
        start: matches a character that can begin one.
        continuations: what would complete one that a literal begins.
        literals: as given.
    """

    def __init__(self, tokens: Collection[str], literals: Sequence[str]) -> None:
        # Longest first: in an alternation the first match wins, which makes it leftmost-longest.
        ordered = sorted(tokens, key=len, reverse=True)
        self.token = re.compile("|".join(map(re.escape, ordered)) or r"(?!)")
        self.start = re.compile("[" + re.escape("".join({token[0] for token in ordered})) + "]" if ordered else r"(?!)")
        self.continuations = _continuations(ordered, literals)
        self.literals = literals


class Marker:
    """Marks untrusted strings for one render, and finds the template's control tokens in the result.

    Args:
        control: the control tokens.
        texts: the inputs, in which the mark must not occur.
    """

    def __init__(self, control: ControlTokens, texts: Iterable[str]) -> None:
        self._mark = unused_character([*control.literals, *texts])
        self._control, self._start = control.token, control.start
        self._continuations = control.continuations

    def mark(self, text: str) -> str:
        """`text` broken by marks wherever a control token could begin or go on."""
        marked = self._start.sub(lambda match: match.group() + self._mark, text)
        if self._continues_a_literal(text):
            first = len(marked) - len(marked.lstrip()) + 1
            marked = marked[:first] + self._mark + marked[first:]
        return marked

    def disarm(self, text: str) -> str:
        """`text` with every character that could begin or go on a control token replaced."""
        disarmed = self._start.sub(self._mark, text)
        if self._continues_a_literal(text):
            first = len(disarmed) - len(disarmed.lstrip())
            disarmed = disarmed[:first] + self._mark + disarmed[first + 1 :]
        return disarmed

    def change_inputs(self, variables: dict[str, Any], change: Change) -> dict[str, Any]:
        """A copy of a template's inputs with `change` (`mark` or `disarm`) applied to every untrusted string.

        Untrusted is every string, keys included, but the names of variables, the keys that templates look up, and the
        known roles.
        """
        changed = {name: _change(value, change) for name, value in variables.items()}
        for message, copy in zip(variables["messages"], changed["messages"], strict=True):
            if message["role"] in KNOWN_ROLES:
                copy["role"] = message["role"]
        return changed

    def control_tokens(self, rendered: str) -> list[str]:
        """The unbroken control tokens in a rendering, in order."""
        return self._control.findall(rendered)

    def split(self, rendered: str) -> list[Segment]:
        """The rendered, marked text as segments, without marks; their texts join to the unmarked text."""
        segments: list[Segment] = []
        end = 0
        for match in self._control.finditer(rendered):
            segments.append(Segment(self._unmark(rendered[end : match.start()]), is_control=False))
            segments.append(Segment(match.group(), is_control=True))
            end = match.end()
        segments.append(Segment(self._unmark(rendered[end:]), is_control=False))
        return [segment for segment in segments if segment.text]

    def _unmark(self, text: str) -> str:
        # A template that asks for ASCII-only JSON has the mark written as its two escaped surrogates.
        return text.replace(self._mark, "").replace(_json_escape(self._mark), "")

    def _continues_a_literal(self, text: str) -> bool:
        stripped = text.lstrip()
        return bool(stripped) and any(
            stripped.startswith(rest) or rest.startswith(stripped) for rest in self._continuations
        )


def unused_character(texts: Iterable[str]) -> str:
    """A character that occurs in none of the texts and that string functions of templates leave as it is.

    Raises:
        TemplateError: there is none.
    """
    texts = list(texts)
    used = set().union(*map(set, texts))
    for character in map(chr, _MARK_RANGE):
        # Nor may its escape, which is removed with it, stand in a text as it is.
        if character not in used and not any(_json_escape(character) in text for text in texts):
            return character
    raise TemplateError("prompt: every character that could mark untrusted text is in use. Shorten the conversation")


def strings_in(value: Any) -> Iterable[str]:
    """Every string inside JSON-like data, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)


def _change(value: Any, change: Change) -> Any:
    if isinstance(value, dict):
        return {(key if key in _KNOWN_KEYS else change(key)): _change(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_change(item, change) for item in value]
    return copy_value(value, change, "prompt")


def _continuations(control_tokens: Sequence[str], literals: Sequence[str]) -> frozenset[str]:
    """What would complete a control token that the end of a literal begins."""
    longest = max(map(len, control_tokens), default=0)
    tails = {end[-longest:] for literal in literals for end in (literal, literal.rstrip()) if end}
    found = {
        token[length:]
        for token in control_tokens
        for length in range(1, len(token))
        if any(tail.endswith(token[:length]) for tail in tails)
    }
    # A token may also be begun by several literals in a row (`'<' ~ '|' ~ name`): what stands in the middle of one and is
    # no word counts as well.
    middles = {tail for tail in tails if len(tail) < longest and not tail.isalnum() and not tail.isspace()}
    for token in control_tokens:
        for middle in middles:
            found.update(token[match.end() :] for match in re.finditer(re.escape(middle), token))
    return frozenset(rest for rest in found if rest)


def _json_escape(character: str) -> str:
    encoded = character.encode("utf-16-be").hex()
    return f"\\u{encoded[:4]}\\u{encoded[4:]}"
