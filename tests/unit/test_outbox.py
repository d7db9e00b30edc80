from __future__ import annotations

import json

import protocol
import pytest
from outbox import GAP_MS, Outbox


class Page:
    """What a page is posted: (time, texts of the words in the bunch, types of all else)."""

    def __init__(self):
        self.now, self.bunches, self.timers = 1000.0, [], []
        self.outbox = Outbox(self.take, lambda: self.now, lambda wait, act: self.timers.append((self.now + wait, act)))

    def take(self, text):
        self.bunches.append((self.now, [wire.get("text") or wire["type"] for wire in json.loads(text)]))

    def words(self, count, every):
        for number in range(count):
            self.outbox.post(protocol.Delta(1, str(number), self.now))
            self.now += every


def test_the_first_word_goes_out_at_once_and_quick_ones_behind_it_in_bunches():
    page = Page()
    page.words(200, 4)
    assert page.bunches[0] == (1000.0, ["0"])
    gaps = [later[0] - earlier[0] for earlier, later in zip(page.bunches, page.bunches[1:], strict=False)]
    assert all(GAP_MS - 4 <= gap <= GAP_MS for gap in gaps[1:])
    assert [word for _, words in page.bunches for word in words] == [
        str(n) for n in range(sum(len(w) for _, w in page.bunches))
    ]


@pytest.mark.parametrize("every", [50, 81, 400])
def test_slow_words_go_out_one_by_one(every):
    page = Page()
    page.words(20, every)
    assert [words for _, words in page.bunches] == [[str(n)] for n in range(20)]


@pytest.mark.parametrize("every", [7, 25, 39, 60])
def test_no_word_waits_longer_than_the_gap(every):
    page = Page()
    page.words(60, every)
    for at, words in page.bunches:
        for word in words:
            assert at - (1000 + every * int(word)) < GAP_MS


def test_words_behind_which_nothing_comes_go_out_by_themselves():
    page = Page()
    page.words(3, 5)
    ((at, act),) = page.timers
    assert at == 1000 + GAP_MS
    page.now = at
    act()
    assert page.bunches[1:] == [(at, ["1", "2"])]
    act()
    assert len(page.bunches) == 2


def test_whatever_else_is_said_goes_out_at_once_behind_the_words_before_it():
    page = Page()
    page.words(3, 1)
    page.outbox.post(protocol.ReasoningDelta(1, "hm", page.now))
    page.outbox.post(protocol.Remark("slow", page.now))
    page.outbox.post(protocol.Remark("again", page.now))
    assert [words for _, words in page.bunches] == [["0"], ["1", "2", "hm", "slow"], ["again"]]


def test_the_page_takes_neighbouring_words_of_one_answer_together():
    said = [
        protocol.Delta(1, "a", 1.0),
        protocol.Delta(1, "b", 2.0),
        protocol.ReasoningDelta(1, "c", 3.0),
        protocol.Delta(2, "d", 4.0),
        protocol.Delta(3, "e", 5.0),
        protocol.Delta(3, "f", 6.0),
        protocol.Remark("g", 7.0),
    ]
    heard = protocol.decode_bunch(f"[{','.join(map(protocol.encode, said))}]")
    assert heard == [
        protocol.Delta(1, "ab", 1.0),
        protocol.ReasoningDelta(1, "c", 3.0),
        protocol.Delta(2, "d", 4.0),
        protocol.Delta(3, "ef", 5.0),
        protocol.Remark("g", 7.0),
    ]


@pytest.mark.parametrize("text", ["", "{}", '"a"', '[{"type": "Delta"}]', '[1, {"type": "Delta", "id": 1}]', "[null]"])
def test_what_is_no_list_of_messages_is_refused(text):
    with pytest.raises(protocol.ProtocolError):
        protocol.decode_bunch(text)
