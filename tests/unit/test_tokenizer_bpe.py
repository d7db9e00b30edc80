"""Merging: both ways of doing it give what the plain definition gives."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyruntime.text.bpe import MergeError, _merge_long, _merge_short, merge, resolve_merges


def by_definition(ids, table):
    """Merge the leftmost pair of the lowest rank until there is none."""
    ids = list(ids)
    while True:
        values = [table.values.get(left * table.base + right) for left, right in pairwise(ids)]
        found = min(((value, at) for at, value in enumerate(values) if value is not None), default=None)
        if found is None:
            return ids
        value, at = found
        ids[at : at + 2] = [value % table.base]


@st.composite
def tables(draw):
    """Merges over two or three letters, in any order of rank, some of them repeated."""
    tokens = list("abc"[: draw(st.integers(1, 3))])
    merges = []
    for _ in range(draw(st.integers(0, 20))):
        left, right = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if len(left + right) <= 10:
            merges.append(f"{left} {right}")
            tokens += [left + right] * (left + right not in tokens)
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    letters = [vocab[letter] for letter in "abc" if letter in vocab]
    return resolve_merges(draw(st.permutations(merges)), vocab, len(vocab)), letters


@settings(deadline=None, max_examples=300)
@given(tables(), st.data())
def test_both_ways_of_merging_give_what_the_definition_gives(case, data):
    table, letters = case
    ids = data.draw(st.lists(st.sampled_from(letters), max_size=60))
    expected = by_definition(ids, table)
    assert _merge_short(list(ids), table) == expected
    assert _merge_long(list(ids), table) == expected
    assert merge(list(ids), table) == expected


def test_a_pair_made_by_a_merge_may_go_before_the_rest_of_its_kind():
    """Its rank is the lower one, which trained tables do not have and others may."""
    vocab = {"a": 0, "aa": 1, "aaa": 2}
    table = resolve_merges(["aa a", "a a"], vocab, 3)
    for way in (_merge_short, _merge_long):
        assert way([0] * 7, table) == by_definition([0] * 7, table) == [2, 2, 0]


def test_no_merges_leave_everything_as_it_is():
    table = resolve_merges([], {"a": 0}, 1)
    assert merge([0] * 100, table) == [0] * 100
    assert merge([], table) == []


@pytest.mark.parametrize(
    ("merges", "index", "problem"),
    [
        (["a b", "q z"], 1, "'q'"),
        (["a b", "b a"], 1, "'ba'"),
        (["ab"], 0, "1 parts"),
        (["a b", "a b a"], 1, "3 parts"),
        (["a b", "a b a", "b"], 1, "3 parts"),
        (["a "], 0, "''"),
        (["a\tb"], 0, "1 parts"),
    ],
)
def test_a_merge_that_cannot_be_read_is_named(merges, index, problem):
    with pytest.raises(MergeError, match=problem) as caught:
        resolve_merges(merges, {"a": 0, "b": 1, "ab": 2}, 3)
    assert caught.value.index == index
