r"""Split patterns: from the tokenizer's own regular expressions to Python's `re`, with nothing left to chance.

Tokenizer files write patterns for another engine (Oniguruma), whose `\p{L}`, `\p{N}` and `\s` follow another
Unicode version than any given Python, and whose white space does not include U+001C..U+001F. So every class is
written out as explicit ranges from `unicode_tables.json`, which were probed from the reference tokenizer. The
result is the same on every Python.

A pattern is compiled for the characters that a text can hold: ASCII, the basic plane, or all. Python finds a
character of the basic plane in a class by one table look-up and tries ranges above it one after another, so the
narrow forms are several times faster; they are also much quicker to compile, and English needs only the first.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from pyruntime.errors import ParameterError

ASCII, BASIC_PLANE, ALL = 0x7F, 0xFFFF, 0x10FFFF
_ABOVE_BASIC_PLANE = re.compile("[\U00010000-\U0010ffff]")

# One item of a pattern: a class by name, an escape, the start of a case-insensitive group, or any other character.
_ITEM = re.compile(r"\\p\{(?P<name>\w+)\}|\\(?P<escape>.)|\(\?(?P<group>[:!=]|i:)|(?P<other>.)", re.DOTALL)
_PLAIN_ESCAPES = {"r": r"\r", "n": r"\n", "t": r"\t"}
# Characters that fold to an ASCII letter without being its other case; in the reference, U+017F matches (?i:s).
_FOLDS = {"s": "\u017f", "k": "\u212a"}


@cache
def tables() -> dict[str, list[tuple[int, int]]]:
    """The reference's character classes, and `nfc_starters`: name to (first, last) code points."""
    data = json.loads(Path(__file__).with_name("unicode_tables.json").read_text(encoding="ascii"))
    flat = {**data["classes"], "nfc_starters": data["nfc_starters"]}
    return {name: list(zip(codes[::2], codes[1::2], strict=True)) for name, codes in flat.items()}


def character_class(name: str, limit: int = ALL) -> str:
    """The inside of a `[...]` for `re` that holds the class `name` up to the code point `limit`."""
    return "".join(
        f"{_escaped(first)}-{_escaped(min(last, limit))}" for first, last in tables()[name] if first <= limit
    )


def _escaped(code: int) -> str:
    return f"\\U{code:08x}"


def character_limit(text: str) -> int:
    """The narrowest of ASCII, BASIC_PLANE and ALL that holds every character of `text`."""
    if text.isascii():
        return ASCII
    return ALL if _ABOVE_BASIC_PLANE.search(text) else BASIC_PLANE


@cache
def compile_split(pattern: str, limit: int) -> re.Pattern[str]:
    r"""`pattern` for texts whose characters are at most `limit`, as one capturing group.

    Understood: literals, `|`, `[...]`, quantifiers, the groups `(?:`, `(?=`, `(?!` and `(?i:` (over ASCII
    letters, not nested), the escapes `\r \n \t`, escaped punctuation, `\s`, `\S` and `\p{NAME}` for the classes
    of the table.

    Raises:
        ParameterError: anything else.
    """
    out = []
    in_class = folding = False
    for item in _ITEM.finditer(pattern):
        group, other = item["group"], item["other"]
        if item["name"] or item["escape"]:
            out.append(_translate_escape(pattern, item, in_class=in_class, limit=limit))
        elif group:
            folding = group == "i:"
            out.append("(?:" if folding else item[0])
        elif other == "(" or (other == "[" and in_class):
            raise ParameterError("pattern", pattern, "groups (?:…) (?=…) (?!…) (?i:…), classes without classes inside")
        elif folding and not in_class and other.isalpha():
            out.append(f"[{other.lower()}{other.upper()}{_FOLDS.get(other.lower(), '')}]")
        else:
            in_class = other == "[" or (in_class and other != "]")
            folding = folding and other != ")"
            out.append(other)
    return re.compile(f"({''.join(out)})")


def _translate_escape(pattern: str, item: re.Match[str], *, in_class: bool, limit: int) -> str:
    name, escape = item["name"], item["escape"]
    if name in tables():
        inside = character_class(name, limit)
        return inside if in_class else f"[{inside}]"
    if escape == "s":
        inside = character_class("white_space", limit)
        return inside if in_class else f"[{inside}]"
    if escape == "S" and not in_class:
        return f"[^{character_class('white_space', limit)}]"
    if escape in _PLAIN_ESCAPES:
        return _PLAIN_ESCAPES[escape]
    if escape is None or escape.isalnum():
        known = ", ".join(rf"\p{{{known}}}" for known in tables())
        raise ParameterError("pattern", pattern, rf"\s \S \r \n \t {known}", advice=f"It has {item[0]}")
    return "\\" + escape
