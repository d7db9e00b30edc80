"""Pre-tokenization: text is cut into pieces, and merges never cross a cut.

The behaviours are those of the reference's `Split`; what is said of matches holds for what lies between them when
a split is inverted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal, get_args

from pyruntime.text.patterns import ALL, BASIC_PLANE, character_limit, compile_split
from pyruntime.text.stand_ins import with_stand_ins

Behavior = Literal["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
BEHAVIORS: tuple[str, ...] = get_args(Behavior)


@dataclass(frozen=True)
class Split:
    """Cut at the matches of a pattern.

    Attributes:
        pattern: in the language of `pattern_syntax`.
        behavior: what becomes of the matches: left out, pieces of their own, put to the piece before or behind, or
            (Contiguous) one piece for matches without anything between them.
        invert: the pattern says what is not a match.
    """

    pattern: str
    behavior: Behavior = "Isolated"
    invert: bool = False


@dataclass(frozen=True)
class PrefixSpace:
    """Put a space before every piece that does not begin with one."""


Step = Split | PrefixSpace


def split(text: str, steps: Sequence[Step]) -> list[str]:
    """The pieces of `text`, none of them empty, after every step has been taken on every piece."""
    limit = character_limit(text)
    if limit == ALL:
        patterns = tuple(step.pattern for step in steps if isinstance(step, Split))
        like = with_stand_ins(text, patterns) if len(patterns) == len(steps) else None
        if like is not None:
            ends = [0, *accumulate(map(len, _take(like, steps, BASIC_PLANE)))]
            if ends[-1] == len(text):  # nothing was left out, so the pieces have the lengths of these
                return [text[start:end] for start, end in pairwise(ends)]
    return _take(text, steps, limit)


def _take(text: str, steps: Sequence[Step], limit: int) -> list[str]:
    """The pieces of `text`, whose characters are at most `limit`, after every step."""
    pieces = [text] if text else []
    for step in steps:
        if isinstance(step, PrefixSpace):
            pieces = [piece if piece[0] == " " else f" {piece}" for piece in pieces]
        else:
            pieces = _cut(pieces, step, limit)
    return pieces


def _cut(pieces: list[str], step: Split, limit: int) -> list[str]:
    # The pattern is one group, so what it matched stands between what it did not.
    cut = compile_split(step.pattern, limit).split
    if step.behavior == "Isolated":
        return [part for piece in pieces for part in cut(piece) if part]
    if step.behavior == "Removed":
        first = 1 if step.invert else 0
        return [part for piece in pieces for part in cut(piece)[first::2] if part]
    joined: list[str] = []
    for piece in pieces:
        parts = [(part, (index % 2 == 1) != step.invert) for index, part in enumerate(cut(piece)) if part]
        joined += _join(parts, step.behavior)
    return joined


def _join(parts: Sequence[tuple[str, bool]], behavior: str) -> list[str]:
    """Put the parts, each with whether it is a match, together as the behaviour says."""
    backwards = behavior == "MergedWithNext"
    joined: list[str] = []
    was_match = False
    for part, is_match in reversed(parts) if backwards else parts:
        joins = is_match == was_match if behavior == "Contiguous" else is_match and not was_match
        was_match = is_match
        if joins and joined:
            joined[-1] = part + joined[-1] if backwards else joined[-1] + part
        else:
            joined.append(part)
    return joined[::-1] if backwards else joined
