"""What a benchmark found: every round of every figure, kept as JSON and drawn as SVG.

A *figure* is something measured ("decode after 53 tokens, tokens/s"); a *contender* is whose it is ("TinyPyLM, 2 threads").
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.chart import Bar, bar_chart, figure
from benchmarks.machine import NoiseGuard

RESULTS = Path(__file__).parent / "results"

Step = Callable[[], Mapping[str, float]]  # measures something once: figure → value


@dataclass
class Series:
    """The rounds of one figure of one contender.

    Attributes:
        rounds: what was measured, in the order of the rounds.
        foreign_cores: processors that other processes used meanwhile, per round.
    """

    rounds: list[float] = field(default_factory=list)
    foreign_cores: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, object]:
        """As it is written into a result."""
        rounds = [significant(value) for value in self.rounds]
        return {
            "median": significant(statistics.median(self.rounds)),
            "rounds": rounds,
            "foreign_cores": [round(value, 2) for value in self.foreign_cores],
        }


Figures = dict[str, dict[str, Series]]  # figure → contender → its rounds


@dataclass(frozen=True)
class Contender:
    """Somebody who is measured.

    Attributes:
        steps: what is done in a round, one after the other.
        is_ours: whether a step that was disturbed may be done again; a peer's command guards itself.
    """

    steps: Sequence[Step]
    is_ours: bool = True


def take_turns(contenders: Mapping[str, Contender], rounds: int, guard: NoiseGuard | None = None) -> Figures:
    """Measure everybody in every round, so that whatever else the machine does falls on all of them alike."""
    ours, once = guard or NoiseGuard(), NoiseGuard(attempts=1)
    figures: Figures = {}
    for number in range(rounds):
        for name, contender in contenders.items():
            for step in contender.steps:
                found, foreign = (ours if contender.is_ours else once).quiet(step)
                for what, value in found.items():
                    series = figures.setdefault(what, {}).setdefault(name, Series())
                    series.rounds.append(value)
                    series.foreign_cores.append(foreign)
            print(f"  round {number + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
    return figures


def significant(value: float) -> float:
    """Four digits are all that a measurement is worth."""
    return float(f"{value:.4g}")


def shown_command(arguments: Sequence[str]) -> str:
    """The command as a result tells it: peers by name, files without the folders of one machine."""
    shown = [re.sub(r"^(\w[^=]*)=.*", r"\1=…", part) if previous == "--peer" else Path(part).name or part
             for previous, part in zip(["", *arguments], arguments, strict=False)]  # fmt: skip
    return " ".join(["python -m benchmarks", *shown])


def add_result_options(parser: argparse.ArgumentParser, rounds: int) -> None:
    """The options that every benchmark of the page has."""
    parser.add_argument("--rounds", type=int, default=rounds, help="how often all is measured (default: %(default)s)")
    parser.add_argument("--save", metavar="NAME", help="write results/NAME.json and results/NAME.svg as well")


def report(
    name: str, options: argparse.Namespace, figures: Figures, about: Mapping[str, object], chart: str | None = None
) -> dict[str, object]:
    """Print a table and the JSON, write both files where `--save` asks for them; returns what the JSON holds.

    Args:
        name: of the benchmark.
        options: with `save`.
        figures: what was found.
        about: what else the result says: model, machine, facts.
        chart: an SVG to write in place of the usual one.
    """
    result: dict[str, object] = {
        "benchmark": name,
        "command": shown_command([name, *sys.argv[1:]]),
        **about,
        "figures": {what: {who: series.summary() for who, series in found.items()} for what, found in figures.items()},
    }
    text = json.dumps(result, indent=1, ensure_ascii=False)
    text = re.sub(r"\[\s+([^][{}]*?)\s+\]", lambda found: "[" + re.sub(r"\s+", " ", found[1]) + "]", text)
    sys.stdout.write(table(figures) + "\n" + text + "\n")
    if options.save:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{options.save}.json").write_text(text + "\n", encoding="utf-8")
        drawn = chart or draw(name, figures, about)
        (RESULTS / f"{options.save}.svg").write_text(drawn, encoding="utf-8")
    return result


def table(figures: Figures) -> str:
    """Medians and spreads as a Markdown table."""
    who = list(dict.fromkeys(name for found in figures.values() for name in found))
    rows = ["| | " + " | ".join(who) + " |", "|---|" + "---|" * len(who)]
    for what, found in figures.items():
        cells = [_cell(found[name].rounds) if name in found else "" for name in who]
        rows.append(f"| {what} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _cell(rounds: Sequence[float]) -> str:
    return f"{figure(statistics.median(rounds))} ({figure(min(rounds))}–{figure(max(rounds))})"


def draw(name: str, figures: Figures, about: Mapping[str, object]) -> str:
    """A chart of all figures: the medians, with the spread of the rounds."""
    groups = {
        what: [
            Bar(who, {"": statistics.median(series.rounds)}, (min(series.rounds), max(series.rounds)), is_ours(who))
            for who, series in found.items()
        ]
        for what, found in figures.items()
    }
    return bar_chart(
        f"{name}: {about.get('model', '')}", groups, f"Medians and spread of all rounds. {about_machine(about)}"
    )


def is_ours(contender: str) -> bool:
    """Whether a contender is this project's page."""
    return contender.startswith(OURS)


def about_machine(about: Mapping[str, object]) -> str:
    """One line for charts."""
    machine = about.get("machine")
    return f"{machine['processor']}, {machine['cores']} cores" if isinstance(machine, dict) else ""


OURS = "TinyPyLM"
