"""The byte alphabet of GPT-2: every byte has a printable character, in which vocabularies are written.

Bytes that are printable Latin-1 characters other than the space and the soft hyphen stand for themselves; the
others, in order, are U+0100 and up.

Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), section 2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np


def _characters() -> list[str]:
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = iter(range(0x100, 0x200))
    return [chr(byte if byte in plain else next(moved)) for byte in range(256)]


CHARACTERS = _characters()  # byte -> character
_OUTSIDE = -1
_BYTES = np.full(0x200, _OUTSIDE, np.int16)  # code point -> byte; the last one stands for all that follow
_BYTES[[ord(character) for character in CHARACTERS]] = range(256)


def all_to_bytes(tokens: Sequence[str]) -> tuple[list[bytes], set[int]]:
    """The bytes that each token stands for, and which tokens are not all written in the byte alphabet.

    Those stand for their UTF-8. The tokens hold no lone surrogates.
    """
    # All at once: a vocabulary has up to a quarter of a million tokens, and a page waits for this.
    codes = np.frombuffer("".join(tokens).encode("utf-32-le"), np.uint32)
    found = _BYTES[np.minimum(codes, len(_BYTES) - 1)]
    data = found.astype(np.uint8).tobytes()
    ends = [0, *accumulate(map(len, tokens))]
    as_bytes = [data[start:end] for start, end in pairwise(ends)]
    odd = set(np.searchsorted(ends, np.flatnonzero(found == _OUTSIDE), side="right").tolist())
    for place in odd:
        as_bytes[place - 1] = tokens[place - 1].encode()
    return as_bytes, {place - 1 for place in odd}


def to_bytes(token: str) -> bytes:
    """The bytes that one token stands for."""
    return all_to_bytes([token])[0][0]
