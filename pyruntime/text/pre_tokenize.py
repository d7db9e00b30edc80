"""Pre-tokenization: text is cut into pieces, and merges never cross a cut."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.text.patterns import character_limit, compile_split


def split(text: str, patterns: Sequence[str]) -> list[str]:
    """The pieces of `text`: each pattern cuts each piece into its matches and what lies between them.

    Joined, the pieces are `text`; none is empty.
    """
    limit = character_limit(text)
    pieces = [text] if text else []
    for pattern in patterns:
        cut = compile_split(pattern, limit).split
        pieces = [part for piece in pieces for part in cut(piece) if part]
    return pieces
