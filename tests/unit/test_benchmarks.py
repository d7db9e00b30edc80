"""What benchmarks do beside measuring: prompts of exact length, turns, repeats under noise, peers, results, charts."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest

from benchmarks import answers, results
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.chart import Bar, bar_chart, figure
from benchmarks.machine import CpuReading, NoiseGuard, busy_core, descendants, foreign_cores, read_cpu
from benchmarks.memory import kernel_memory
from benchmarks.page import Answer
from benchmarks.peers import entry_for, parse_peer, run_peer
from benchmarks.prompts import prompt_ids, question
from benchmarks.results import Contender, Series, shown_command, significant, table, take_turns
from benchmarks.step import shares
from benchmarks.ttft import stages
from pyruntime.opening import open_model
from tests.tiny_model import open_tiny
from tooling.console import ToolingError

SVG = "{http://www.w3.org/2000/svg}"


# ---------------------------------------------------------------------------------------------------------- questions


@pytest.mark.parametrize("n_tokens", [53, 257, 937, 1000])
def test_a_question_makes_a_prompt_of_exactly_so_many_tokens(default_model, n_tokens):
    model = open_model(default_model)
    assert len(prompt_ids(model, question(model, n_tokens))) == n_tokens


def test_a_question_fits_any_tokenizer():
    model = open_tiny()  # a token for each byte
    text = question(model, 120)
    assert len(prompt_ids(model, text)) == 120
    assert text == text.strip()


def test_a_length_that_no_question_has_is_refused_with_the_lengths_there_are(default_model):
    model = open_model(default_model)
    for impossible in (5, 100_000):
        with pytest.raises(
            ToolingError, match=rf"no prompt of {impossible} tokens can be made \(allowed: \d+ to \d{{4}}\)"
        ):
            question(model, impossible)


# --------------------------------------------------------------------------------------------------------------- noise


class Clock:
    """Readings of a machine on which others use so many cores during each step of a second."""

    def __init__(self, *foreign):
        self.left, self.now, self.others, self.readings = list(foreign), 0.0, 0.0, 0

    def __call__(self):
        self.readings += 1
        return CpuReading(self.now, self.now + self.others, self.now)

    def step(self):
        self.now += 1
        self.others += self.left.pop(0)
        return f"took {self.others:.1f}"


def test_what_others_use_is_what_the_machine_used_and_we_did_not():
    assert foreign_cores(CpuReading(10, 100, 50), CpuReading(14, 108, 57)) == pytest.approx(0.25)
    assert foreign_cores(CpuReading(10, 100, 50), CpuReading(14, 106, 57)) == 0, "clocks do not tick together"


def test_a_step_that_was_left_alone_is_done_once():
    clock = Clock(0.1, 0)
    assert NoiseGuard(clock).quiet(clock.step) == ("took 0.1", pytest.approx(0.1))
    assert clock.left == [0]


def test_a_disturbed_step_is_done_again_until_it_is_left_alone():
    clock = Clock(0.9, 0.5, 0.1, 0)
    result, foreign = NoiseGuard(clock).quiet(clock.step)
    assert foreign == pytest.approx(0.1)
    assert result == "took 1.5"
    assert clock.left == [0]


def test_where_it_never_gets_quiet_the_least_disturbed_attempt_counts():
    clock = Clock(0.9, 0.3, 0.8, 0.6, 0)
    result, foreign = NoiseGuard(clock, attempts=4).quiet(clock.step)
    assert (result, foreign) == ("took 1.2", pytest.approx(0.3))
    assert clock.left == [0]


def test_no_attempt_begins_when_patience_is_at_its_end():
    clock = Clock(0.9, 0.8, 0.7, 0.6)
    NoiseGuard(clock, patience=1.5).quiet(clock.step)
    assert clock.left == [0.7, 0.6]


@pytest.mark.skipif(sys.platform != "linux", reason="processor time is read from Linux")
def test_a_process_of_ours_is_ours_while_it_runs_and_after_it_has_ended():
    before = read_cpu()
    work = "sum(range(20_000_000))"
    with subprocess.Popen([sys.executable, "-c", f"{work}\ninput()"], stdin=subprocess.PIPE) as child:
        assert child.pid in descendants(os.getpid())
        child.communicate(b"\n")
    after = read_cpu()
    assert after.own - before.own > 0.1
    assert after.machine >= before.machine


@pytest.mark.skipif(sys.platform != "linux", reason="processes are read from Linux")
def test_a_busy_core_ends_with_its_block():
    alone = set(descendants(os.getpid()))
    with busy_core(wanted=True):
        assert len(set(descendants(os.getpid())) - alone) == 1
    assert set(descendants(os.getpid())) <= alone
    with busy_core(wanted=False):
        assert set(descendants(os.getpid())) <= alone


# --------------------------------------------------------------------------------------------------------------- turns


def test_contenders_take_turns_and_every_round_is_kept(capsys):
    log = []

    def step(name, value):
        def measure():
            log.append(name)
            return {"speed": value}

        return measure

    quiet = NoiseGuard(lambda: CpuReading(0, 0, 0))
    found = take_turns({"ours": Contender([step("ours", 3.0)]), "peer": Contender([step("peer", 1.0)])}, 2, quiet)
    assert log == ["ours", "peer", "ours", "peer"]
    assert found["speed"]["ours"].rounds == [3.0, 3.0]
    assert found["speed"]["peer"].foreign_cores[0] >= 0


def test_a_peer_is_not_run_again_for_noise():
    clock = Clock(0.9, 0.8, 0)
    runs = []
    take_turns({"peer": Contender([lambda: runs.append(1) or {}], is_ours=False)}, 1, NoiseGuard(clock))
    assert runs == [1]


def test_a_summary_has_the_median_and_every_round():
    told = Series([3.0, 100.123456, 7.0], [0.011, 0.2, 0]).summary()
    assert told == {"median": 7.0, "rounds": [3.0, 100.1, 7.0], "foreign_cores": [0.01, 0.2, 0]}
    assert Series([1.0, 2.0], [0, 0]).summary()["median"] == 1.5


def test_numbers_keep_four_digits():
    assert [significant(value) for value in (123456.7, 0.123456, 42.0)] == [123500.0, 0.1235, 42.0]


def test_a_table_has_a_column_for_each_contender_and_the_spread_of_the_rounds():
    found = {"speed": {"ours": Series([3.0, 1.0, 2.0], [0, 0, 0])}, "memory": {"peer": Series([1234.0], [0])}}
    assert table(found).splitlines() == [
        "| | ours | peer |",
        "|---|---|---|",
        "| speed | 2 (1–3) |  |",
        "| memory |  | 1,234 (1,234–1,234) |",
    ]


def test_a_shown_command_names_no_folder_and_no_command_of_a_peer():
    given = ["decode", "--model", "/some/where/m.gguf", "--peer", "wllama=python /x/bench.py", "--rounds", "3"]
    assert shown_command(given) == "python -m benchmarks decode --model m.gguf --peer wllama=… --rounds 3"


def test_a_result_holds_command_machine_and_rounds_and_is_written_with_its_chart(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["python -m benchmarks decode", "--save", "x"])
    found = {"speed, tokens/s": {"TinyPyLM, 2 threads": Series([3.0, 4.0], [0.0, 0.1])}}
    machine = {"processor": "P", "cores": 2}
    results.report("decode", argparse.Namespace(save="x"), found, {"model": "m.gguf", "machine": machine})
    written = (tmp_path / "x.json").read_text()
    assert json.loads(written) == {
        "benchmark": "decode",
        "command": "python -m benchmarks decode --save x",
        "model": "m.gguf",
        "machine": machine,
        "figures": {
            "speed, tokens/s": {
                "TinyPyLM, 2 threads": {"median": 3.5, "rounds": [3.0, 4.0], "foreign_cores": [0.0, 0.1]}
            }
        },
    }
    assert '"rounds": [3.0, 4.0]' in written, "a line for each list"
    assert capsys.readouterr().out.endswith(written)
    ET.parse(tmp_path / "x.svg")


# --------------------------------------------------------------------------------------------------------------- peers


def test_a_peer_is_a_name_and_a_command():
    assert parse_peer("a b=python 'x y' --z=1") == ("a b", ["python", "x y", "--z=1"])
    for wrong in ("python", "=python", "a=", "a= "):
        with pytest.raises(argparse.ArgumentTypeError, match="NAME=COMMAND"):
            parse_peer(wrong)


def test_a_peer_tells_its_figures_in_the_last_line_it_prints():
    code = "print('loading'); print('{\"gen\": {}}')"
    assert run_peer("p", [sys.executable, "-c", code]) == {"gen": {}}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([sys.executable, "-c", "print('no JSON')"], "--peer p: it should print a line of JSON"),
        ([sys.executable, "-c", "print('[1]')"], "--peer p: it should print a line of JSON"),
        ([sys.executable, "-c", "print('{}'); raise SystemExit('why')"], "why"),
        (["no-such-program"], "--peer p: no-such-program cannot be run"),
    ],
)
def test_a_peer_that_fails_is_told_by_name_with_what_it_said(command, words):
    with pytest.raises(ToolingError, match=words):
        run_peer("p", command)


def test_the_entry_of_a_peer_with_the_nearest_prompt_is_compared():
    told = {"gen": {"a": {"prompt_tokens": 52}, "b": {"prompt_tokens": 257}, "c": {"prompt_tokens": 240}, "d": {}}}
    assert entry_for(told, 53) == {"prompt_tokens": 52}
    assert entry_for(told, 250) == {"prompt_tokens": 257}
    assert entry_for(told, 937) == {}, "none is near"
    assert entry_for({}, 53) == {}


# ------------------------------------------------------------------------------------------------------------- figures

MARKS = {
    "start": 0.0, "python-ready": 900.0, "model-ready": 1200.0, "send": 2000.0, "prompt-ready": 2004.0,
    "prefill-done": 2084.0, "first-token": 2090.0, "first-paint": 2110.0, "done": 2290.0,
}  # fmt: skip
ATTRIBUTES = {"promptTokens": "53", "cachedTokens": "3", "newTokens": "41"}


def test_the_figures_of_an_answer_come_from_the_pages_marks():
    answer = Answer(MARKS, ATTRIBUTES)
    assert (answer.ttft_ms, answer.first_paint_ms) == (90, 110)
    assert answer.prefill_tps == pytest.approx(50 / 0.080)
    assert answer.decode_tps == pytest.approx(40 / 0.200)


def test_an_answer_that_is_not_what_was_to_be_measured_is_refused():
    answer = Answer(MARKS, ATTRIBUTES)
    assert answer.check(prompt_tokens=53, new_tokens=41, cached=3) is answer
    for wrong in ({}, {"cached": 3, "prompt_tokens": 54}, {"cached": 3, "new_tokens": 72}):
        with pytest.raises(ToolingError, match="were to be measured"):
            answer.check(**wrong)


def test_stages_go_from_mark_to_mark_in_the_order_of_time():
    assert stages(MARKS, 0, "model-ready") == {"python-ready": 900, "model-ready": 300}
    assert list(stages(MARKS, 2000, "first-paint").items()) == [
        ("prompt-ready", 4),
        ("prefill-done", 80),
        ("first-token", 6),
        ("first-paint", 20),
    ]


def test_pythons_share_of_a_step_is_what_lies_between_the_calls():
    calls = [(0.0, 4.0, 4.5), (5.0, 9.0, 9.5), (10.0, 14.0, 16.0), (18.0, 22.0, 22.5)]
    assert shares(calls) == {
        "a step, ms": 6.0,
        "forward pass, ms": 4.0,
        "Python, mean, ms": 2.0,
        "Python, median, ms": 1.0,
        "drawing, of that, median, ms": 0.5,
    }


def test_each_decoded_token_reads_all_weights_but_embeddings_that_are_no_head(default_model):
    tied = open_model(default_model)
    assert "output.weight" not in tied.tensors
    assert answers.bytes_per_token(tied) == sum(tensor.nbytes for tensor in tied.tensors.values())


def test_the_kernels_take_little_memory_beside_weights_and_cache(default_model):
    model = open_model(default_model)
    told = kernel_memory(model)
    assert told["rest_mib"] < 32
    assert told["weights_mib"] == pytest.approx(sum(t.nbytes for t in model.tensors.values()) / 2**20, rel=0.01)
    assert told["context"] == 4096


# -------------------------------------------------------------------------------------------------------------- charts


def bars_of(svg):
    return [box for box in ET.fromstring(svg).iter(f"{SVG}rect") if box.get("height") == "15.0"]


def test_bars_are_as_long_as_their_figures_and_each_group_has_its_own_scale():
    groups = {"a": [Bar("x", {"": 10.0}), Bar("y", {"": 5.0})], "b": [Bar("x", {"": 1000.0})]}
    widths = [float(box.get("width")) for box in bars_of(bar_chart("t", groups))]
    assert widths == [widths[0], pytest.approx(widths[0] / 2), widths[0]]


def test_a_bar_of_stages_is_as_long_as_all_of_them_and_a_legend_tells_their_names():
    svg = bar_chart("t", {"a": [Bar("x", {"one": 30.0, "two": 10.0})]})
    first, second = bars_of(svg)
    assert float(first.get("width")) == pytest.approx(3 * float(second.get("width")), abs=0.2)
    assert float(second.get("x")) == pytest.approx(float(first.get("x")) + float(first.get("width")), abs=0.2)
    words = [text.text for text in ET.fromstring(svg).iter(f"{SVG}text")]
    assert {"t", "a", "x", "one", "two", "40"} <= set(words)


def test_nothing_leaves_the_chart_and_labels_are_text():
    groups = {"<&>": [Bar("<b>", {"": 3.0}, (1.0, 9.0)), Bar("zero", {"": 0.0})], "none": []}
    drawn = ET.fromstring(bar_chart("t", groups, note="& more"))
    width, height = map(float, drawn.get("viewBox").split()[2:])
    for box in drawn.iter(f"{SVG}rect"):
        assert float(box.get("x")) + float(box.get("width")) <= width
        assert float(box.get("y")) + float(box.get("height")) <= height
    assert {"<&>", "<b>", "& more"} <= {text.text for text in drawn.iter(f"{SVG}text")}


def test_figures_are_written_as_people_read_them():
    assert [figure(value) for value in (0.1234, 42.25, 123.4, 12345.6, 0)] == ["0.123", "42.2", "123", "12,346", "0"]


# ------------------------------------------------------------------------------------------------------------- command


def run(repo_root, *arguments):
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=repo_root, capture_output=True, text=True, check=False)


def test_the_one_command_lists_all_benchmarks_and_refuses_others(repo_root):
    told = run(repo_root)
    assert told.returncode == 0
    assert all(f"\n  {name} " in told.stdout for name in BENCHMARKS)
    refused = run(repo_root, "speed")
    assert refused.returncode == 2
    assert refused.stderr.startswith("speed: no such benchmark\n")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_tells_its_options(monkeypatch, capsys, name):
    monkeypatch.setattr(sys, "argv", ["benchmarks", name, "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: python -m benchmarks {name}")


def test_the_documentation_names_every_benchmark(repo_root):
    text = (repo_root / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert [name for name in BENCHMARKS if f"| `{name}` |" not in text] == []
