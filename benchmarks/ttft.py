"""What the time until the first word consists of: `python -m benchmarks ttft`. Prints a table and JSON.

The same question, with a prompt of 53 tokens of which nothing is in the cache, is asked in three states:

    first visit   in a fresh browser, as soon as the page takes messages
    reload        after a reload, with the model stored
    warm          in a new conversation, when an answer has been given before

Each stage goes from one of the page's performance marks to the next; the marks are told in `docs/benchmarks.md`.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Mapping

from benchmarks.answers import FEW, SHORT
from benchmarks.chart import Bar, bar_chart
from benchmarks.page import VARIANTS, Answer, BenchPage, Browsers, Variant, about, add_page_options, browsers, subject
from benchmarks.peers import add_peer_option, entry_for, peer_contenders
from benchmarks.prompts import question
from benchmarks.results import (
    OURS,
    Contender,
    Figures,
    about_machine,
    add_result_options,
    report,
    take_turns,
)

READY, FIRST_TOKEN, FIRST_PAINT = "navigation → ready, ms", "send → first-token, ms", "send → first-paint, ms"
_STAGE = "stage"


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description="Measures the stages until the first word. Prints a table and JSON.")
    add_page_options(parser)
    add_peer_option(parser)
    add_result_options(parser, rounds=5)
    options = parser.parse_args()
    model = subject(options.model)
    text = question(model.open(), SHORT)
    parameters: dict[str, object] = {"temperature": 0, "max-tokens": FEW}
    if options.executor:
        parameters["executor"] = options.executor
    with browsers(model, busy=options.busy) as started, contextlib.ExitStack() as stack:
        contenders = {}
        for choice in options.variants:
            visitor = stack.enter_context(contextlib.closing(Visitor(started, VARIANTS[choice], parameters, text)))
            name = ", ".join(part for part in (OURS, VARIANTS[choice].label) if part)
            contenders[f"{name}, first visit"] = Contender([visitor.first_visit])
            contenders[f"{name}, reload"] = Contender([visitor.reload])
            contenders[f"{name}, warm"] = Contender([visitor.warm])
        contenders |= peer_contenders(
            options.peer,
            lambda told: (
                {FIRST_TOKEN: float(entry["ttft_ms"])} if "ttft_ms" in (entry := entry_for(told, SHORT)) else {}
            ),
        )
        figures = take_turns(contenders, options.rounds)
        facts = about(options, model, started)
    report("ttft", options, figures, facts, chart(figures, facts))
    return 0


class Visitor:
    """One browser that visits, reloads and asks; a first visit begins with a fresh one.

    Args:
        started: opens browsers.
        variant: how the page is run.
        parameters: of its address.
        text: what is asked.
    """

    def __init__(self, started: Browsers, variant: Variant, parameters: Mapping[str, object], text: str) -> None:
        self._started, self._variant, self._parameters, self._text = started, variant, parameters, text
        self._open = contextlib.ExitStack()
        self._page: BenchPage | None = None

    def first_visit(self) -> dict[str, float]:
        """The figures of a first visit."""
        self._open.close()
        self._page = self._open.enter_context(self._started.page(self._variant, self._parameters))
        marks = self._page.visit()
        return {**boot_figures(marks), **answer_figures(self._page.ask(self._text).check(prompt_tokens=SHORT))}

    def reload(self) -> dict[str, float]:
        """Those after a reload."""
        page = self._visited()
        marks = page.reload()
        return {**boot_figures(marks), **answer_figures(page.ask(self._text).check(prompt_tokens=SHORT))}

    def warm(self) -> dict[str, float]:
        """Those of a page that has answered before."""
        return answer_figures(self._visited().ask_anew(self._text).check(prompt_tokens=SHORT))

    def close(self) -> None:
        """Close the browser."""
        self._open.close()

    def _visited(self) -> BenchPage:
        if self._page is None:
            self.first_visit()
        assert self._page is not None  # noqa: S101 - a first visit has just been made
        return self._page


def stages(marks: Mapping[str, float], begin: float, end: str) -> dict[str, float]:
    """Milliseconds from each mark after `begin` to the one before it, up to the mark `end`; in the order of time."""
    found, previous = {}, begin
    for name, time in sorted(marks.items(), key=lambda item: item[1]):
        if begin < time <= marks[end]:
            found[name] = time - previous
            previous = time
    return found


def boot_figures(marks: Mapping[str, float]) -> dict[str, float]:
    """The time until the page takes messages, and its stages."""
    parts = {f"{_STAGE} {name}, ms": time for name, time in stages(marks, 0, "model-ready").items()}
    return {READY: marks["model-ready"], **parts}


def answer_figures(answer: Answer) -> dict[str, float]:
    """The times until the first word is there and until it is seen, and their stages."""
    parts = stages(answer.marks, answer.marks["send"], "first-paint")
    return {
        FIRST_TOKEN: answer.ttft_ms,
        FIRST_PAINT: answer.first_paint_ms,
        **{f"{_STAGE} {name}, ms": time for name, time in parts.items() if name != "done"},
    }


def chart(figures: Figures, facts: Mapping[str, object]) -> str:
    """One bar for each state, of its stages: until ready, and until the first paint."""
    groups: dict[str, list[Bar]] = {}
    for heading, total, wanted in (
        ("navigation → ready, ms", READY, lambda stage: stage.endswith("-ready") and stage != "prompt-ready"),
        ("send → first paint, ms", FIRST_TOKEN, lambda stage: stage == "prompt-ready" or not stage.endswith("-ready")),
    ):
        for who in figures.get(total, {}):
            parts = {
                stage: statistics.median(found[who].rounds)
                for what, found in figures.items()
                if what.startswith(_STAGE) and who in found and wanted(stage := what.split()[1].rstrip(","))
            }
            if not parts:
                parts = {"first-token": statistics.median(figures[total][who].rounds)}
            groups.setdefault(heading, []).append(Bar(who, parts, is_ours=who.startswith(OURS)))
    return bar_chart(f"Until the first word: {facts.get('model', '')}", groups, f"Medians. {about_machine(facts)}")
