"""How much memory a tab takes: `python -m benchmarks memory`. Prints a table and JSON.

peak            most that the largest renderer process of a fresh browser has held (VmHWM), after loading the model and
one answer of 128 tokens
before, after   what it holds before and after 1,000 short chats that each cut the cache back; Python's own memory too
kernels         what the kernels ask for: weights, KV cache, and the rest
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from benchmarks import machine
from benchmarks.answers import SHORT
from benchmarks.page import VARIANTS, Browsers, about, add_page_options, browsers, subject
from benchmarks.peers import add_peer_option, peer_contenders
from benchmarks.prompts import question
from benchmarks.results import OURS, Contender, NoiseGuard, Step, add_result_options, report, take_turns
from pyruntime.engine import DEFAULT_CONTEXT
from pyruntime.model import families
from pyruntime.model.kernel_executor import KernelSettings, plan_memory
from pyruntime.model.kernel_layout import matrix_bytes, row_bytes
from pyruntime.opening import OpenedModel

PEAK = "renderer's peak memory, MiB"
ANSWER = 128
_WARMING = 50  # chats before memory is first looked at: until then caches fill


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description="Measures the memory of a tab. Prints a table and JSON.")
    add_page_options(parser)
    add_peer_option(parser)
    add_result_options(parser, rounds=3)
    parser.add_argument("--cycles", type=int, default=1000, help="short chats in a row (default: %(default)s)")
    options = parser.parse_args()
    model = subject(options.model)
    opened = model.open()
    text = question(opened, SHORT)
    parameters: dict[str, object] = {"temperature": 0, "max-tokens": ANSWER}
    if options.executor:
        parameters["executor"] = options.executor
    with browsers(model, busy=options.busy) as started:
        contenders = {
            ", ".join(part for part in (OURS, VARIANTS[choice].label) if part): Contender(
                [_peak(started, choice, parameters, text)]
            )
            for choice in options.variants
        }
        contenders[f"{OURS}, loaded while nothing listens to the browser's network"] = Contender(
            [_visitors_peak(started, options.variants[0], parameters, text)]
        )
        contenders |= peer_contenders(options.peer, _peers_peak)
        # Memory is the same whoever else computes.
        figures = take_turns(contenders, options.rounds, NoiseGuard(attempts=1))
        flat = _chats_in_a_row(started, options.variants[0], parameters, options.cycles)
        facts = about(options, model, started, chats_in_a_row=flat, kernels=kernel_memory(opened))
    report("memory", options, figures, facts)
    return 0


def _peak(started: Browsers, choice: str, parameters: Mapping[str, object], text: str) -> Step:
    def step() -> dict[str, float]:
        with started.page(VARIANTS[choice], parameters) as page:
            page.visit()
            page.ask(text).check(prompt_tokens=SHORT)
            return {PEAK: machine.renderer_peak_mib()}

    return step


def _visitors_peak(started: Browsers, choice: str, parameters: Mapping[str, object], text: str) -> Step:
    def step() -> dict[str, float]:
        with started.page_loaded_alone(VARIANTS[choice], parameters) as page:
            page.ask(text).check(prompt_tokens=SHORT)
            return {PEAK: machine.renderer_peak_mib()}

    return step


def _peers_peak(told: Mapping[str, Any]) -> dict[str, float]:
    found = told.get("memory", {}).get("renderer_peak_rss_mib", told.get("peak_rss_mib"))
    return {} if found is None else {PEAK: float(found)}


def _chats_in_a_row(
    started: Browsers, choice: str, parameters: Mapping[str, object], cycles: int
) -> dict[str, dict[str, float]]:
    with started.page(VARIANTS[choice], parameters) as page:
        page.visit()
        found = {}
        for name, count in (("before", _WARMING), ("after", cycles)):
            told = page.probe("cycles", count, 2)
            found[name] = {
                "chats": count,
                "renderer_mib": round(machine.renderer_mib(), 1),
                "python_heap_mib": told["python_heap_bytes"] / 2**20,
            }
        return found


def kernel_memory(opened: OpenedModel, context: int = DEFAULT_CONTEXT) -> dict[str, float]:
    """What the kernels' memory consists of, in MiB: weights, cache, and the rest."""
    config = opened.config
    stored = opened.weights.match(families.weight_shapes(config))
    context = min(context, config.context_length)
    plan = plan_memory(config, stored, context, KernelSettings(), takes_bytes=True)
    weights = sum(
        row_bytes("FLOAT", weight.columns)
        if weight.format == "F32"
        else matrix_bytes(weight.format, weight.rows, weight.columns)
        for weight in plan.weights.values()
    )
    sizes = {"weights": weights, "cache": plan.cache.n_bytes, "rest": plan.n_bytes - weights - plan.cache.n_bytes}
    return {"context": context, **{f"{name}_mib": round(size / 2**20, 1) for name, size in sizes.items()}}
