"""One piece of text to token ids: what its bytes or characters start as, and then merging.

Where a piece has other letters than ASCII, its characters are merged one by one first, and each is remembered; what is
left is to merge whole characters, a third of the work for Chinese. That gives the same ids as starting from
bytes when (checked for each piece)

- every byte has a token, so that none is left out and brings its neighbours together,
- no token that begins or ends inside a character and goes beyond it occurs in the piece, so nothing but whole
  characters merges across a boundary, and
- for every character that becomes one token, all merges inside it come before all merges it takes part in, so no
  merge across a boundary is chosen that its neighbour's unfinished characters would have kept back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np

from pyruntime.text.bpe import merge, merge_ranked
from pyruntime.text.byte_alphabet import CHARACTERS
from pyruntime.text.patterns import one_of
from pyruntime.text.spec import TokenizerSpec, find_mixed

_FEW = 6  # bytes of a piece below which starting from bytes is quicker
_MOST_CHARACTERS = 1 << 16  # remembered


class PieceEncoder:
    """Encodes pieces with one tokenizer.

    Args:
        spec: the tokenizer.
    """

    def __init__(self, spec: TokenizerSpec) -> None:
        self._spec = spec
        self._merges = spec.merges
        self._characters: dict[str, list[int] | None] = {}

    def encode(self, piece: str) -> list[int]:
        """The ids of a piece, which is not empty."""
        data = piece.encode()
        whole = self._whole(data)
        if whole is not None:
            return [whole]
        if not self._spec.byte_level:
            return merge(self._start(piece), self._merges)
        if self._is_simple:
            byte_ids = self._byte_ids
            kept = data.translate(None, self._missing) if self._missing else data
            if len(data) > _FEW and len(kept) == len(data) and not piece.isascii():
                ids = self._start_from_characters(piece, data)
                if ids is not None:
                    return merge(ids, self._merges)
            return merge([byte_ids[byte] for byte in kept], self._merges)
        return merge(self._start(CHARACTERS[byte] for byte in data), self._merges)

    def dropped(self, piece: str) -> int:
        """How many bytes of a piece become nothing."""
        data = piece.encode()
        if self._spec.unknown_id is not None or self._whole(data) is not None:
            return 0
        if self._is_simple:
            return len(data) - len(data.translate(None, self._missing))
        characters = [CHARACTERS[byte] for byte in data] if self._spec.byte_level else piece
        weight = 1 if self._spec.byte_level else 0
        return sum(weight or len(character.encode()) for character in characters if not self._start([character]))

    def _whole(self, data: bytes) -> int | None:
        return self._spec.vocabulary.ids.get(data) if self._spec.ignore_merges else None

    @cached_property
    def _byte_ids(self) -> list[int]:
        """The id of each byte, -1 where it has none."""
        byte_ids = [-1] * 256
        unreachable = self._spec.vocabulary.unreachable
        for token_id, token in enumerate(self._spec.vocabulary.tokens):
            if token is not None and len(token) == 1 and token_id not in unreachable:
                byte_ids[token[0]] = token_id
        return byte_ids

    @cached_property
    def _missing(self) -> bytes:
        return bytes(byte for byte, token_id in enumerate(self._byte_ids) if token_id < 0)

    @cached_property
    def _is_simple(self) -> bool:
        """Whether every byte is one id or nothing."""
        spec = self._spec
        replaced = spec.unknown_id is not None or spec.fallback_ids
        return spec.byte_level and not (self._missing and replaced)

    @cached_property
    def _known(self) -> Mapping[str, int]:
        """The ids of single characters."""
        if self._spec.byte_level:
            return {CHARACTERS[byte]: token_id for byte, token_id in enumerate(self._byte_ids) if token_id >= 0}
        known: dict[str, int] = {}
        for token, token_id in self._spec.vocabulary.ids.items():
            if len(token) <= 4 and len(text := token.decode()) == 1:
                known[text] = token_id
        return known

    def _start(self, characters: Iterable[str]) -> list[int]:
        """What each character is before merging.

        One without a token is its bytes' tokens, if there are all of them, or else the unknown token, or nothing. Of
        unknown ones in a row only one is counted if they are fused. As in the reference, an unknown one that waits is
        written when the next known character comes, so bytes overtake it.
        """
        spec, known = self._spec, self._known
        ids: list[int] = []
        waiting: list[int] = []
        for character in characters:
            token_id = known.get(character)
            if token_id is not None:
                ids += [*waiting, token_id]
                waiting = []
                continue
            if spec.fallback_ids:
                fallback = [spec.fallback_ids[byte] for byte in character.encode()]
                if -1 not in fallback:
                    ids += fallback
                    continue
            if spec.unknown_id is not None:
                if not spec.fuse_unknown:
                    ids += waiting
                waiting = [spec.unknown_id]
        return ids + waiting

    def _start_from_characters(self, piece: str, data: bytes) -> list[int] | None:
        """The ids of the characters, merged one by one; None where that could lead to other ids than starting from bytes."""
        if self._mixed.search(data):
            return None
        ids: list[int] = []
        for character in piece:
            found = self._characters.get(character, ())
            if found == ():
                found = self._character(character)
            if found is None:
                return None
            ids += found
        return ids

    def _character(self, character: str) -> list[int] | None:
        ids = [self._byte_ids[byte] for byte in character.encode()]
        found: list[int] | None
        found, highest = merge_ranked(ids, self._merges)
        if len(found) == 1 and highest >= self._first_use[found[0]]:
            found = None
        if len(self._characters) >= _MOST_CHARACTERS:
            self._characters.clear()
        self._characters[character] = found
        return found

    @cached_property
    def _mixed(self) -> re.Pattern[bytes]:
        """Finds mixed tokens in a piece."""
        spec = self._spec
        mixed = find_mixed(spec.vocabulary.tokens) if spec.mixed is None else spec.mixed
        if not mixed:
            return re.compile(b"(?!)")
        try:
            # Latin-1 writes each byte as one character, which is what the pattern of bytes wants.
            return re.compile(one_of(token.decode("latin-1") for token in mixed).encode("latin-1"))
        except ValueError:
            return re.compile(b"")  # a strange vocabulary: they may be anywhere

    @cached_property
    def _first_use(self) -> np.ndarray:
        """Of each id, the lowest rank of the merges that it takes part in."""
        merges = self._merges
        count = len(merges.values)
        keys = np.fromiter(merges.values.keys(), np.int64, count)
        ranks = np.fromiter(merges.values.values(), np.int64, count) // merges.base
        first = np.full(merges.base, np.iinfo(np.int64).max, np.int64)
        for operand in (keys // merges.base, keys % merges.base):
            np.minimum.at(first, operand, ranks)
        return first
