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
# The largest published chat templates have 17,000 characters, 320 tags, and 1,500 tokens in a tag. The compiler's
# recursion is as deep as a tag has operators and a chain has branches, and it does not survive tens of thousands.
MAX_SOURCE = 200_000
MAX_TAGS = 2_000
MAX_TOKENS_IN_TAG = 4_000
MAX_BRACKETS = 64

_CLOSERS = {"{{": "}}", "{%": "%}", "{#": "#}"}
_OPENER = re.compile(r"\{[{%#][-+]?")
_RAW_END = re.compile(r"\{%[-+]?\s*endraw\s*[-+]?%\}")
_IN_TAG = re.compile(
    r"""(?P<space>\s+)
      | (?P<string>'(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?)
      | (?P<name>[^\W\d]\w*)
      | (?P<number>\d[\w.]*)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
# Methods that change a list or a dictionary: the reference refuses them, and a list put into itself would never end.
_CHANGING = frozenset(
    [
        "append",
        "extend",
        "insert",
        "pop",
        "update",
        "clear",
        "remove",
        "setdefault",
        "popitem",
        "sort",
        "reverse",
        "add",
        "discard",
    ]
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
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    _refuse_namespaces_as_values(source)
    return "".join(_pieces(source))


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
    position = tags = 0
    while (opener := _OPENER.search(source, position)) is not None:
        tags += 1
        if tags > MAX_TAGS:
            raise TemplateError(f"chat template: more than {MAX_TAGS} tags. Choose another model")
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
    depth = brackets = 0
    while position < len(source):
        if len(tokens) > MAX_TOKENS_IN_TAG or brackets > MAX_BRACKETS:
            raise TemplateError(
                f"chat template: a tag of more than {MAX_TOKENS_IN_TAG} words or {MAX_BRACKETS} brackets within each other"
            )
        if depth == 0 and source.startswith(closer, position):
            tokens.append(Token("other", closer))
            return tokens, position + len(closer)
        match = _IN_TAG.match(source, position)
        assert match is not None  # noqa: S101 - the last alternative takes any character
        token = Token(str(match.lastgroup), match.group())
        # `}}` ends a tag only outside a dictionary.
        if token.kind == "other":
            brackets += (token.text in "([{") - (token.text in ")]}")
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
    behind = iter([*(word.text for word in words[1:]), ""])
    for token in tokens:
        if token.kind == "space":
            yield token.text
            continue
        yield _adapt_token(token, before, following=next(behind), opens_generation=is_block and alone)
        before = [before[1], token]


def _adapt_token(token: Token, before: list[Token], *, following: str, opens_generation: bool) -> str:
    if token.kind == "string" and token.text[1:-1] == "tojson" and before[0].text == "map" and following == ")":
        return f"{token.text})|map('{JSON_FILTER}'"
    if token.kind != "name":
        return token.text
    if opens_generation and token.text in _GENERATION:
        return _GENERATION[token.text]
    if token.text == "tojson" and (before[1].text == "|" or (before[1].text == "filter" and before[0].text == "")):
        return f"tojson|{JSON_FILTER}"
    if before[1].text == "|" and token.text == "format":
        return f"{FORMAT_FILTER}|format"
    if before[1].text == "." and token.text == "format" and following == "(":
        if before[0].kind != "string":
            raise TemplateError("chat template: `.format` of anything but a literal string is not allowed")
        check_widths(_literal(before[0]))
    if before[1].text == "." and token.text in _CHANGING and following == "(":
        return f"{token.text}_is_refused"  # which is no method, as the error will say when it is reached
    return token.text


def _literal(token: Token) -> str:
    """The text a string token stands for."""
    return _ESCAPE.sub(_unescape, token.text[1:-1])


def _refuse_namespaces_as_values(source: str) -> None:
    """A namespace may only be reached into: one that holds itself would crash whatever prints it.

    Raises:
        TemplateError: `namespace(…)` stands elsewhere than in `set NAME = namespace(…)`, or such a name stands alone.
    """
    tags = [[t for t in tokens if t.kind != "space"] for tokens in _tags(source)]
    names = {tag[1].text for tag in tags if [t.text for t in tag[:1] + tag[2:5]] == ["set", "=", "namespace", "("]}
    for tag in tags:
        made = tag[0].text == "set" and len(tag) > 4 and tag[1].text in names and tag[3].text == "namespace"
        for index, token in enumerate(tag):
            is_own = made and index in (1, 3)
            reached_into = index + 1 < len(tag) and tag[index + 1].text == "."
            is_name = token.kind == "name" and (index == 0 or tag[index - 1].text != ".")
            if is_name and not is_own and (token.text == "namespace" or (token.text in names and not reached_into)):
                raise TemplateError(
                    f"chat template: the namespace {token.text!r} is used as a value, which is not supported"
                )


def _tags(source: str) -> Iterator[list[Token]]:
    """The tokens of every tag, comments left out."""
    position = 0
    while (opener := _OPENER.search(source, position)) is not None:
        kind = opener.group()[:2]
        if kind == "{#":
            position = _after(source, "#}", opener.end())
            continue
        tokens, position = _tag(source, opener.end(), _CLOSERS[kind])
        yield tokens
        if kind == "{%" and _first_name(tokens) == "raw":
            end = _RAW_END.search(source, position)
            position = end.start() if end else len(source)


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
        found.extend(_literal(token) for token in tokens if token.kind == "string")
    found.append(source[position:])
    return [text for text in found if text]


def _unescape(match: re.Match[str]) -> str:
    escape = match.group(1)
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _SIMPLE_ESCAPES.get(escape, escape)
