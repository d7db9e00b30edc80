r"""Split patterns for Python's `re`, with nothing left to chance.

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
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from pyruntime.text.pattern_syntax import UNBOUNDED, Ahead, Chars, Item, Repeat, parse_pattern

ASCII, BASIC_PLANE, ALL = 0x7F, 0xFFFF, 0x10FFFF
_ABOVE_BASIC_PLANE = re.compile("[\U00010000-\U0010ffff]")
_DEEPEST_TRIE = 64  # nested groups; Python's compiler goes a few times as deep


@cache
def tables() -> dict[str, list[tuple[int, int]]]:
    """The reference's character classes, and `newer`: name to (first, last) code points."""
    data = json.loads(Path(__file__).with_name("unicode_tables.json").read_text(encoding="ascii"))
    flat = {**data["classes"], "newer": data["newer"]}
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
    """`pattern` for texts whose characters are at most `limit`, as one capturing group.

    Raises:
        ParameterError: it is not of the language of `pattern_syntax`.
    """
    alternatives = parse_pattern(pattern)
    return re.compile("(" + "|".join("".join(_item(item, limit) for item in items) for items in alternatives) + ")")


def _item(item: Item, limit: int) -> str:
    if isinstance(item, Ahead):
        return f"(?{'!' if item.negated else '='}{_set(item.of, limit)})"
    if isinstance(item.of, Chars):
        return _set(item.of, limit) + _quantifier(item)
    words = "|".join("".join(_set(chars, limit) for chars in word) for word in item.of.words)
    return f"(?:{words}){_quantifier(item)}"


def _quantifier(repeat: Repeat) -> str:
    most = "" if repeat.most == UNBOUNDED else repeat.most
    plain = {(1, 1): "", (0, 1): "?", (0, UNBOUNDED): "*", (1, UNBOUNDED): "+"}
    return plain.get((repeat.least, repeat.most), f"{{{repeat.least},{most}}}") + "+" * repeat.possessive


def _set(chars: Chars, limit: int) -> str:
    inside = "".join(character_class(name, limit) for name in chars.classes)
    for first, last in chars.ranges:
        if ord(first) <= limit:
            inside += f"{_escaped(ord(first))}-{_escaped(min(ord(last), limit))}"
    if not inside:  # no such character in these texts
        return f"[{_escaped(0)}-{_escaped(ALL)}]" if chars.negated else f"[^{_escaped(0)}-{_escaped(ALL)}]"
    return f"[{'^' * chars.negated}{inside}]"


def one_of(words: Iterable[str]) -> str:
    """A pattern for `re` that matches the longest of `words`, none of them empty, in time of its length.

    Written as a trie: every character decides, so a thousand words cost no more than one.

    Raises:
        ValueError: too many of the words are each the beginning of the next.
    """
    root: dict[str, Any] = {}
    for word in words:
        node = root
        for char in word:
            node = node.setdefault(char, {})
        node[""] = {}
    return _trie(root, 0)


def _trie(node: dict[str, Any], depth: int) -> str:
    """The pattern of what may follow."""
    if depth > _DEEPEST_TRIE:
        raise ValueError(f"more than {_DEEPEST_TRIE} choices in a row")
    branches = []
    for char, child in node.items():
        if not char:
            continue
        run, below = re.escape(char), child
        while len(below) == 1 and "" not in below:  # no choice: no group
            ((following, below),) = below.items()
            run += re.escape(following)
        branches.append(run + _trie(below, depth + 1))
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)}){'?' if '' in node else ''}"
