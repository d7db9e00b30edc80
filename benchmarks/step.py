"""How much of a decode step is Python: `python -m benchmarks step`. Prints a table and JSON.

An answer of 128 tokens in the page, once with the likeliest token each time and once drawn with the defaults. In the
worker a clock runs around the call that computes the forward pass; everything else of a step — drawing (what the kernels
do for it included), decoding to text, messages to the page, the turn given to the event loop — counts as Python's.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Sequence

from benchmarks.answers import SHORT, label
from benchmarks.page import VARIANTS, BenchPage, about, add_page_options, browsers, subject
from benchmarks.prompts import question
from benchmarks.results import Contender, Step, add_result_options, report, take_turns

ANSWER = 128
DRAWS = {"likeliest": {"temperature": 0}, "drawn": {"seed": 1}}


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description="Measures Python's share of a step. Prints a table and JSON.")
    add_page_options(parser)
    add_result_options(parser, rounds=5)
    options = parser.parse_args()
    model = subject(options.model)
    text = question(model.open(), SHORT)
    with browsers(model, busy=options.busy) as started, contextlib.ExitStack() as stack:
        contenders = {}
        for choice in options.variants:
            for draw, parameters in DRAWS.items():
                wanted = {
                    **parameters,
                    "max-tokens": ANSWER,
                    **({"executor": options.executor} if options.executor else {}),
                }
                page = stack.enter_context(started.page(VARIANTS[choice], wanted))
                page.visit()
                page.probe("time_calls")
                page.ask_anew(text)
                contenders[f"{label(choice, page.probe('about'))}, {draw}"] = Contender([_step(page, text)])
        figures = take_turns(contenders, options.rounds)
        facts = about(options, model, started)
    report("step", options, figures, facts)
    return 0


def _step(page: BenchPage, text: str) -> Step:
    def step() -> dict[str, float]:
        page.probe("taken_calls")
        answer = page.ask_anew(text).check(prompt_tokens=SHORT)
        found = shares(page.probe("taken_calls")[-(answer.new_tokens - 1) :])
        has_kernels = page.probe("about")["executor"] != "numpy"
        return {**found, "forward pass while all else rests, ms": page.probe("alone")} if has_kernels else found

    return step


def shares(calls: Sequence[tuple[float, float, float]]) -> dict[str, float]:
    """What a step consists of, in means and medians.

    Args:
        calls: of each step, when the forward pass began, when it ended, and when a token was drawn (milliseconds).
    """
    began, ended, drawn = zip(*calls, strict=True)
    between = [later - end for later, end in zip(began[1:], ended, strict=False)]
    steps = len(calls) - 1
    return {
        "a step, ms": (began[-1] - began[0]) / steps,
        "forward pass, ms": sum(end - begin for begin, end, _ in calls[:-1]) / steps,
        "Python, mean, ms": sum(between) / steps,
        "Python, median, ms": statistics.median(between),
        "drawing, of that, median, ms": statistics.median(done - end for end, done in zip(ended, drawn, strict=True)),
    }
