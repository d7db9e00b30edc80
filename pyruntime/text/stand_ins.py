"""Stand-ins for the characters above the basic plane, which are costly to cut around.

Python's engine looks a character of the basic plane up in a class in one step, and then tries the class's ranges above
it one after another, hundreds of them. A pattern only asks to which classes a character belongs, so for cutting, each
character above is replaced by one of the basic plane that belongs to the same classes: one emoji in a text would make
everything around it several times slower, and another form of the pattern would have to be compiled.
"""

from __future__ import annotations

import re
from bisect import bisect
from functools import cache

from pyruntime.text.pattern_syntax import CATEGORIES, WHITE_SPACE, Chars, Words, parse_pattern
from pyruntime.text.patterns import BASIC_PLANE, tables

_ABOVE = re.compile("[\U00010000-\U0010ffff]")


def with_stand_ins(text: str, patterns: tuple[str, ...]) -> str | None:
    """`text` with stand-ins, of the same length, which every pattern cuts at the same places.

    None where there is no such text: a character has no like in the basic plane, or a pattern names it, or its
    stand-in, by itself.
    """
    above = set(_ABOVE.findall(text))
    others = {char: _stand_in(char) for char in above}
    named = [bounds for pattern in patterns for bounds in _named_ranges(pattern)]
    for char, other in others.items():
        if other is None or any(first <= char <= last or first <= other <= last for first, last in named):
            return None
    return _ABOVE.sub(lambda match: others[match[0]] or "", text)


@cache
def _stand_in(char: str) -> str | None:
    return _of_basic_plane().get(_classes(ord(char)))


@cache
def _of_basic_plane() -> dict[tuple[str, ...], str]:
    """A character of the basic plane for each combination of classes: the last one, which patterns hardly name."""
    edges = sorted({edge for first, last in _all_ranges() for edge in (last, first - 1) if 0x7F < edge <= BASIC_PLANE})
    # Between two edges all characters belong to the same classes; the last of each stretch is looked at.
    return {_classes(edge): chr(edge) for edge in [*edges, 0xF8FF] if not 0xD800 <= edge < 0xE000}


def _all_ranges() -> list[tuple[int, int]]:
    return [bounds for name in (*CATEGORIES, WHITE_SPACE) for bounds in tables()[name]]


def _classes(code: int) -> tuple[str, ...]:
    """The classes that a code point belongs to."""
    return tuple(name for name in (*CATEGORIES, WHITE_SPACE) if _is_in(name, code))


def _is_in(name: str, code: int) -> bool:
    ranges = tables()[name]
    place = bisect(ranges, (code, 0x110000)) - 1
    return place >= 0 and ranges[place][0] <= code <= ranges[place][1]


@cache
def _named_ranges(pattern: str) -> tuple[tuple[str, str], ...]:
    """The ranges above ASCII that a pattern names by their characters."""
    found: list[Chars] = []
    for items in parse_pattern(pattern):
        for item in items:
            if isinstance(item.of, Words):
                found += [chars for word in item.of.words for chars in word]
            else:
                found.append(item.of)
    return tuple((first, last) for chars in found for first, last in chars.ranges if last > "\x7f")
