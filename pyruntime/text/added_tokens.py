"""Added tokens in a text: found before everything else, by the reference's rules.

Those that are not `normalized` are looked for in the text as it is, the leftmost first and of those the longest. What
lies between is normalised, and the others are looked for there, by their own normalised texts.

A match that is not a single word where it should be is passed over, and so is every other token inside it. White
space that a token takes along is cut off the text before or behind it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from pyruntime.text.normalize import white_space
from pyruntime.text.patterns import character_class, one_of
from pyruntime.text.spec import AddedToken

Part = str | int  # text between added tokens, or the id of one


class AddedTokens:
    """Finds added tokens.

    Args:
        tokens: what to look for.
        normalize: the tokenizer's normalizer.
    """

    def __init__(self, tokens: Sequence[AddedToken], normalize: Callable[[str], str]) -> None:
        self._normalize = normalize
        self._raw = _Finder({token.text: token for token in tokens if not token.normalized})
        self._late = _Finder({normalize(token.text): token for token in tokens if token.normalized})

    def parts(self, text: str) -> Iterator[Part]:
        """The ids of the added tokens and the normalised texts between them, in order."""
        for part in self._raw.parts(text):
            if isinstance(part, int):
                yield part
            else:
                yield from self._late.parts(self._normalize(part))


class _Finder:
    def __init__(self, tokens: dict[str, AddedToken]) -> None:
        self._tokens = tokens
        self._ids = {text: token.id for text, token in tokens.items()}
        self._pattern: re.Pattern[str] | None = None
        self._is_plain = not any(token.single_word or token.lstrip or token.rstrip for token in tokens.values())

    def parts(self, text: str) -> Iterator[Part]:
        if not self._tokens:
            if text:
                yield text
            return
        if self._pattern is None:
            self._pattern = re.compile(f"({one_of(self._tokens)})")
        if not self._is_plain:
            yield from self._careful_parts(text, self._pattern)
            return
        # The pattern is one group, so what it matched stands between what it did not.
        for index, part in enumerate(self._pattern.split(text)):
            if index % 2:
                yield self._ids[part]
            elif part:
                yield part

    def _careful_parts(self, text: str, pattern: re.Pattern[str]) -> Iterator[Part]:
        done = 0
        for match in pattern.finditer(text):
            token = self._tokens[match[0]]
            start, end = match.span()
            if token.single_word and (_is_word(text[start - 1 : start]) or _is_word(text[end : end + 1])):
                continue
            if token.rstrip:
                while end < len(text) and text[end] in white_space():
                    end += 1
            if token.lstrip:
                while start > done and text[start - 1] in white_space():
                    start -= 1
                if max(start, done) >= end:  # all of it is white space that the token before took along
                    continue
            if done < start:
                yield text[done:start]
            yield token.id
            done = end
        if done != len(text):
            yield text[done:]


def _is_word(char: str) -> bool:
    """Whether `char`, which may be empty, is part of a word."""
    return bool(_word().match(char))


@cache
def _word() -> re.Pattern[str]:
    return re.compile(f"[{character_class('word')}]")
