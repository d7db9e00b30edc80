"""How fast answers are in the page: `python -m benchmarks decode | prefill`. Prints a table and JSON.

    decode    tokens per second of an answer behind a prompt of 53 tokens and behind one of 937: (new tokens - 1) / (last -
              first), and what share of the memory's bandwidth the weights alone take
    prefill   tokens per second of prompts of 53, 257 and 937 tokens of which the cache holds nothing

Each way of running the page (`--variants`) and each peer (`--peer`) takes its turn in every round. A page is loaded once
and warmed by one answer, which is not counted; its cache is emptied before each question.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.bandwidth import FIGURE as BANDWIDTH
from benchmarks.bandwidth import memory_contenders
from benchmarks.page import VARIANTS, BenchPage, Browsers, about, add_page_options, browsers, subject
from benchmarks.peers import add_peer_option, entry_for, peer_contenders
from benchmarks.prompts import question
from benchmarks.results import OURS, Contender, Step, add_result_options, report, take_turns
from pyruntime.opening import OpenedModel

SHORT, LONG = 53, 937
PREFILLS = (53, 257, 937)
DECODED = 72  # behind the short prompt the last one is at position 124
FEW = 8


def decode() -> int:
    """Measure and print; the exit code."""
    options = _options("Measures how fast the page's answers are.")
    return measure(
        "decode", options, (SHORT, LONG), DECODED,
        lambda n: f"decode after {n} tokens, tokens/s", "decode_tps",
    )  # fmt: skip


def prefill() -> int:
    """Measure and print; the exit code."""
    options = _options("Measures how fast the page reads prompts.")
    return measure(
        "prefill", options, PREFILLS, FEW,
        lambda n: f"prefill of {n} tokens, tokens/s", "prefill_tps",
    )  # fmt: skip


def _options(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"{description} Prints a table and JSON.")
    add_page_options(parser)
    add_peer_option(parser)
    add_result_options(parser, rounds=5)
    return parser.parse_args()


def measure(
    name: str,
    options: argparse.Namespace,
    prompts: tuple[int, ...],
    new_tokens: int,
    called: Callable[[int], str],
    rate: str,
) -> int:
    """One benchmark of answers.

    Args:
        name: of the benchmark.
        options: of its command.
        prompts: tokens of each question's prompt.
        new_tokens: tokens of each answer.
        called: what the figure of a prompt's length is called.
        rate: the figure, as `Answer` and a peer's entry call it.
    """
    model = subject(options.model)
    opened = model.open()
    weights = bytes_per_token(opened)
    parameters: dict[str, object] = {"temperature": 0, "max-tokens": new_tokens}
    if options.executor:
        parameters["executor"] = options.executor
    with browsers(model, busy=options.busy) as started, contextlib.ExitStack() as stack:
        contenders, ran_with = {}, {}
        for choice in options.variants:
            page = _ready_page(stack, started, choice, parameters, opened)
            ran_with[choice] = page.probe("about")
            contenders[label(choice, ran_with[choice])] = Contender(
                [_step(page, question(opened, n), n, called(n), rate, weights) for n in prompts]
            )
        contenders |= peer_contenders(
            options.peer,
            lambda told: {called(n): float(entry[rate]) for n in prompts if rate in (entry := entry_for(told, n))},
        )
        if name == "decode":
            contenders |= memory_contenders(stack, started)
        figures = take_turns(contenders, options.rounds)
        facts = about(options, model, started, bytes_per_token=weights, ran_with=ran_with)
    report(name, options, figures, facts)
    return 0


def _ready_page(
    stack: contextlib.ExitStack, started: Browsers, choice: str, parameters: Mapping[str, object], opened: OpenedModel
) -> BenchPage:
    page = stack.enter_context(started.page(VARIANTS[choice], parameters))
    page.visit()
    page.ask_anew(question(opened, SHORT))
    return page


def _step(page: BenchPage, text: str, n: int, figure: str, rate: str, weights: int) -> Step:
    def step() -> dict[str, float]:
        found: float = getattr(page.ask_anew(text).check(prompt_tokens=n), rate)
        reads = {BANDWIDTH: found * weights / 1e9} if rate == "decode_tps" and n == SHORT else {}
        return {figure: found, **reads}

    return step


def label(choice: str, ran_with: Mapping[str, Any]) -> str:
    """How results call a way of running the page."""
    return f"{OURS}, {VARIANTS[choice].label or ran_with['executor']}"


def bytes_per_token(opened: OpenedModel) -> int:
    """Bytes of weights in the file that each decoded token needs: all but a table of embeddings that is no head."""
    sizes = {name: tensor.nbytes for name, tensor in opened.tensors.items()}
    if "output.weight" in sizes:
        sizes.pop("token_embd.weight")
    return sum(sizes.values())
