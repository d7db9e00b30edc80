import json

import pytest

from pyruntime.text.stops import StopFilter


def run(stops, chunks):
    """The deltas shown, up to the match or the flush, and the stop string found."""
    stop_filter, shown = StopFilter(stops), []
    for chunk in chunks:
        shown.append(stop_filter.push(chunk))
        if stop_filter.matched:
            return shown, stop_filter.matched
    return [*shown, stop_filter.flush()], None


@pytest.mark.parametrize(
    ("stops", "chunks", "deltas", "matched"),
    [
        (["END"], ["one END two"], ["one "], "END"),
        (["END"], ["a", "E", "N", "D", "b"], ["a", "", "", ""], "END"),
        (["END"], ["a EN"], ["a ", "EN"], None),
        (["END"], ["a EN", "T"], ["a ", "ENT", ""], None),
        (["xyz", "xy"], ["wxyz"], ["w"], "xy"),
        (["y", "xy"], ["wxy"], ["w"], "xy"),
        (["aab"], ["a", "a", "a", "b"], ["", "", "a", ""], "aab"),
        ([], ["a", "b"], ["a", "b", ""], None),
    ],
)
def test_no_part_of_a_stop_string_is_shown_and_nothing_else_is_lost(stops, chunks, deltas, matched):
    assert run(stops, chunks) == (deltas, matched)


def test_nothing_is_shown_after_a_match():
    stop_filter = StopFilter(["x"])
    assert [stop_filter.push(text) for text in ("ax", "b", "x")] == ["a", "", ""]
    assert stop_filter.flush() == ""


def test_every_stop_case_of_the_shared_corpus_holds(shared):
    rows = map(json.loads, (shared / "corpus" / "parser_cases.jsonl").read_text().splitlines())
    cases = [row for row in rows if row["kind"] == "stop"]
    assert len(cases) >= 14
    for case in cases:
        assert run(case["stops"], case["chunks"]) == (case["deltas"], case["matched"]), case["id"]
