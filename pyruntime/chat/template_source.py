"""Changes to a chat template's source that make minijinja render what the reference renders.

The source is read token by token as Jinja reads it (text, comments, strings and all), so a change never touches
prose or a string that happens to look like code:

- line endings become LF, as Jinja does;
- `{% generation %} … {% endgeneration %}` (which marks the assistant's words for training) becomes a block that is
  always taken, keeping its white-space marks;
- `x|tojson(…)` gets a second filter that turns minijinja's JSON into the reference's;
- `"…"|format(…)` and `"…".format(…)` have the widths in their format checked: one huge width would allocate
  gigabytes in a single step, which the limit on steps does not see.

Nothing here renders.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from pyruntime.errors import TemplateError

# Filters that the environment must provide for the rewritten source.
JSON_FILTER = "tojson_as_the_reference"
FORMAT_FILTER = "format_with_checked_widths"

MAX_FORMAT_WIDTH = 10_000
MAX_SOURCE = 1_000_000  # characters; the largest published chat templates have some 20,000

_CLOSERS = {"{{": "}}", "{%": "%}", "{#": "#}"}
_OPENER = re.compile(r"\{[{%#][-+]?")
_RAW_END = re.compile(r"\{%[-+]?\s*endraw\s*[-+]?%\}")
_IN_TAG = re.compile(
    r"""(?P<space>\s+)
      | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<name>[^\W\d]\w*)
      | (?P<number>\d[\w.]*)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_GENERATION = {"generation": "if true", "endgeneration": "endif"}
_FORMAT_SPEC = re.compile(r"\{[^{}]*\}|%[-+ #0-9.*]*")
_DIGITS = re.compile(r"\d+")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_SIMPLE_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class Token(NamedTuple):
    """A token inside `{{ }}` or `{% %}`; `kind` is "space", "string", "name", "number" or "other"."""

    kind: str
    text: str


def adapt(source: str) -> str:
    """The template's source as minijinja should get it.

    Raises:
        TemplateError: it is absurdly long, or formats with widths that are huge or not to be seen in the source.
    """
    if len(source) > MAX_SOURCE:
        raise TemplateError(
            f"chat template: {len(source)} characters (allowed: at most {MAX_SOURCE}). Choose another model"
        )
    return "".join(_pieces(source.replace("\r\n", "\n").replace("\r", "\n")))


def check_widths(text: str) -> str:
    """`text` unchanged, if as a format string it asks for no huge width.

    Raises:
        TemplateError: a width or precision above 10,000, or one taken from an argument.
    """
    for spec in _FORMAT_SPEC.findall(text):
        if spec.startswith("%") and "*" in spec:
            raise TemplateError("chat template: a format with a computed width (`*`) is not allowed")
        if any(len(digits) > 6 or int(digits) > MAX_FORMAT_WIDTH for digits in _DIGITS.findall(spec)):
            raise TemplateError(f"chat template: a format wider than {MAX_FORMAT_WIDTH} characters is not allowed")
    return text


def _pieces(source: str) -> Iterator[str]:
    position = 0
    while (opener := _OPENER.search(source, position)) is not None:
        yield source[position : opener.start()]
        kind = opener.group()[:2]
        if kind == "{#":
            position = _after(source, "#}", opener.end())
            yield source[opener.start() : position]
            continue
        tokens, position = _tag(source, opener.end(), _CLOSERS[kind])
        is_block = kind == "{%"
        yield opener.group() + "".join(_adapt_tag(tokens, is_block=is_block))
        if is_block and _first_name(tokens) == "raw":
            end = _RAW_END.search(source, position)
            stop = end.start() if end else len(source)
            yield source[position:stop]
            position = stop
    yield source[position:]


def _after(source: str, closer: str, position: int) -> int:
    found = source.find(closer, position)
    return len(source) if found < 0 else found + len(closer)


def _tag(source: str, position: int, closer: str) -> tuple[list[Token], int]:
    """The tokens from `position` up to and with the closer, and the position behind it."""
    tokens: list[Token] = []
    depth = 0
    while position < len(source):
        if depth == 0 and source.startswith(closer, position):
            tokens.append(Token("other", closer))
            return tokens, position + len(closer)
        match = _IN_TAG.match(source, position)
        assert match is not None  # noqa: S101 - the last alternative takes any character
        token = Token(str(match.lastgroup), match.group())
        # `}}` ends a tag only outside a dictionary.
        depth += (token.text == "{") - (token.text == "}" and depth > 0) if token.kind == "other" else 0
        tokens.append(token)
        position = match.end()
    return tokens, position


def _first_name(tokens: list[Token]) -> str:
    return next((token.text for token in tokens if token.kind == "name"), "")


def _adapt_tag(tokens: list[Token], *, is_block: bool) -> Iterator[str]:
    words = [token for token in tokens if token.kind != "space"]
    alone = len([w for w in words if w.kind == "name"]) == 1 and all(
        w.text in "-+%}" for w in words if w.kind != "name"
    )
    before = [Token("other", ""), Token("other", "")]  # the two tokens before this one, spaces left out
    for index, token in enumerate(tokens):
        yield _adapt_token(token, before, following=_next(tokens, index), opens_generation=is_block and alone)
        if token.kind != "space":
            before = [before[1], token]


def _next(tokens: list[Token], index: int) -> str:
    return next((token.text for token in tokens[index + 1 :] if token.kind != "space"), "")


def _adapt_token(token: Token, before: list[Token], *, following: str, opens_generation: bool) -> str:
    if token.kind != "name":
        return token.text
    if opens_generation and token.text in _GENERATION:
        return _GENERATION[token.text]
    if before[1].text == "|" and token.text == "tojson":
        return f"tojson|{JSON_FILTER}"
    if before[1].text == "|" and token.text == "format":
        return f"{FORMAT_FILTER}|format"
    if before[1].text == "." and token.text == "format" and following == "(":
        if before[0].kind != "string":
            raise TemplateError("chat template: `.format` of anything but a literal string is not allowed")
        check_widths(before[0].text)
    return token.text


def literals(source: str) -> list[str]:
    """The texts a template writes as they stand: its prose, and the strings inside its tags, escapes resolved.

    They are what a control token may be built upon.
    """
    found: list[str] = []
    position = 0
    while (opener := _OPENER.search(source, position)) is not None:
        found.append(source[position : opener.start()])
        kind = opener.group()[:2]
        if kind == "{#":
            position = _after(source, "#}", opener.end())
            continue
        tokens, position = _tag(source, opener.end(), _CLOSERS[kind])
        found.extend(_ESCAPE.sub(_unescape, token.text[1:-1]) for token in tokens if token.kind == "string")
    found.append(source[position:])
    return [text for text in found if text]


def _unescape(match: re.Match[str]) -> str:
    escape = match.group(1)
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _SIMPLE_ESCAPES.get(escape, escape)
