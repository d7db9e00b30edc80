"""Byte-pair encoding of one piece of text: adjacent tokens are merged, lowest rank first, leftmost first.

- A merge table maps a pair of token ids, packed into one int, to its rank and the id it becomes, packed into
  another. Comparing two such values compares their ranks.
- A short piece is merged by looking for the smallest value again and again, which C-level `min` does quickly.
  A long one keeps the places of every pair in heaps, so that n symbols cost about n log n steps whatever they
  are. Both give the same ids; a test compares them.
- It does not know bytes, text or files: ids in, ids out.

Source: Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units" (2016).
"""

from __future__ import annotations

import heapq
import operator
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np

from pyruntime.errors import shorten

_SHORT = 48  # symbols; below it the simple way is faster, by up to half
_MERGES_AT_ONCE = 4096
_NEVER = 1 << 60  # above every value of a table, and above every key when it stands for an id


class MergeError(ValueError):
    """A merge cannot be read: `index` says which, the message says why."""

    def __init__(self, index: int, problem: str) -> None:
        self.index = index
        super().__init__(problem)


@dataclass(frozen=True)
class MergeTable:
    """The merges of a tokenizer, by id.

    Attributes:
        base: more than any id; both kinds of int are packed with it.
        values: left * base + right -> rank * base + merged id.
    """

    base: int
    values: Mapping[int, int]


def resolve_merges(merges: Sequence[Any], vocab: Mapping[str, int], base: int) -> MergeTable:
    """The table of `merges`, in order of rank. Of a repeated pair the last rank counts.

    Args:
        merges: as a tokenizer file writes them, all "LEFT RIGHT" or all [LEFT, RIGHT].
        vocab: token to id.
        base: more than any id.

    Raises:
        MergeError: a merge is not two tokens, or it or what it makes is not in the vocabulary.
    """
    # Flat lists and `map` rather than a loop: a vocabulary has up to half a million merges, and a page waits for this.
    if merges and isinstance(merges[0], str):
        if any(merge.count(" ") != 1 for merge in merges):
            raise _find_fault(merges, vocab)
        parts = " ".join(merges).split(" ")
    else:
        if set(map(len, merges)) - {2}:
            raise _find_fault(merges, vocab)
        parts = list(chain.from_iterable(merges))
    left, right = parts[::2], parts[1::2]
    id_of = vocab.__getitem__
    try:
        first, second, merged = (
            np.fromiter(map(id_of, tokens), np.int64, len(merges))
            for tokens in (left, right, map(operator.add, left, right))
        )
    except (KeyError, TypeError):
        raise _find_fault(merges, vocab) from None
    return make_table(base, first, second, merged)


def make_table(base: int, left: np.ndarray, right: np.ndarray, merged: np.ndarray) -> MergeTable:
    """The table of the merges of `left` and `right` ids to `merged` ones, all (n,) integers, in order of rank."""
    table: dict[int, int] = {}
    # Piece by piece: what the numbers take meanwhile would stay with a page, whose memory never shrinks.
    for first in range(0, len(merged), _MERGES_AT_ONCE):
        piece = slice(first, first + _MERGES_AT_ONCE)
        # The 32 bits of Pyodide's integers are too few.
        keys = left[piece].astype(np.int64) * base + right[piece]
        ranks = np.arange(first, first + len(keys), dtype=np.int64)
        table.update(zip(keys.tolist(), (ranks * base + merged[piece]).tolist(), strict=True))
    return MergeTable(base, table)


def _find_fault(merges: Sequence[Any], vocab: Mapping[str, int]) -> MergeError:
    for index, merge in enumerate(merges):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if len(pair) != 2:
            return MergeError(index, f"{len(pair)} parts instead of two")
        if not all(isinstance(token, str) for token in pair):
            return MergeError(index, "its parts are not strings")
        for token in (*pair, "".join(pair)):
            if token not in vocab:
                return MergeError(index, f"{shorten(token)} is not a token of the vocabulary")
    raise AssertionError("a merge was refused and none is at fault")


def merge(ids: list[int], table: MergeTable) -> list[int]:
    """The ids that remain when no adjacent two of `ids` can be merged any more. `ids` itself is used up."""
    return _merge_short(ids, table) if len(ids) <= _SHORT else _merge_long(ids, table)


def merge_ranked(ids: list[int], table: MergeTable) -> tuple[list[int], int]:
    """As `merge`, for a few ids, and the highest rank of the merges on the way (-1 for none)."""
    highest = -1
    while True:
        values = [table.values.get(left * table.base + right, _NEVER) for left, right in pairwise(ids)]
        best = min(values, default=_NEVER)
        if best == _NEVER:
            return ids, highest
        at = values.index(best)
        ids[at : at + 2] = [best % table.base]
        highest = max(highest, best // table.base)


def _merge_short(ids: list[int], table: MergeTable) -> list[int]:
    base, value_of = table.base, table.values.get
    values = [value_of(left * base + right, _NEVER) for left, right in pairwise(ids)]
    while values:
        best = min(values)
        if best == _NEVER:
            break
        at = values.index(best)
        ids[at] = merged = best % base
        del ids[at + 1], values[at]
        if at:
            values[at - 1] = value_of(ids[at - 1] * base + merged, _NEVER)
        if at < len(values):
            values[at] = value_of(merged * base + ids[at + 1], _NEVER)
    return ids


def _merge_long(ids: list[int], table: MergeTable) -> list[int]:
    """As `_merge_short`, over a linked list: `after` and `before` say who stands where.

    `places` has, for each pair's value, where that pair may stand, as a heap. Places are not taken out when a
    neighbour changes: a place is stale when the pair there has another value now.
    """
    base, value_of = table.base, table.values.get
    end = len(ids)  # the place of a mark that stands behind the last and before the first, and merges with nothing
    ids.append(_NEVER)
    after, before = array("i", [*range(1, end + 1), 0]), array("i", [end, *range(end)])  # a quarter of a list's memory
    values = [value_of(left * base + right, _NEVER) for left, right in pairwise(ids)]
    values.append(_NEVER)
    places: dict[int, list[int]] = {_NEVER: []}
    for at, value in enumerate(values):
        places.setdefault(value, []).append(at)
    queue = list(places)
    heapq.heapify(queue)

    while (best := queue[0]) != _NEVER:
        waiting = places[best]
        if not waiting:
            heapq.heappop(queue)
            del places[best]
            continue
        at = heapq.heappop(waiting)
        if values[at] != best:
            continue
        left, gone = before[at], after[at]
        right = after[gone]
        ids[at] = merged = best % base
        values[gone] = _NEVER
        after[at], before[right] = right, at
        values[at] = value_of(merged * base + ids[right], _NEVER)
        values[left] = value_of(ids[left] * base + merged, _NEVER)
        for place in (left, at):
            value = values[place]
            if value in places:
                heapq.heappush(places[value], place)
            else:
                places[value] = [place]
                heapq.heappush(queue, value)

    merged_ids = []
    at = after[end]
    while at != end:
        merged_ids.append(ids[at])
        at = after[at]
    return merged_ids
