"""How fast the native kernels are: `python -m benchmarks kernels [--model FILE] [--busy]`. Prints a table and JSON.

Tokens per second, medians. Thread counts take turns in short rounds, so that what else the machine does falls on all of
them alike. `--busy` keeps one core occupied by another process meanwhile.

    prefill N    a prompt of N tokens into an empty cache
    decode @N    one token after another, behind N others
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.machine import busy_core
from pyruntime.formats.source import run_without_waiting
from pyruntime.model import native_executor
from pyruntime.model.kernel_plan import KernelSettings
from pyruntime.model.native_host import usable_cores
from pyruntime.opening import OpenedModel, open_model
from tooling import cache
from tooling.kernels import build_native
from tooling.pins import read_pins

if TYPE_CHECKING:
    from pyruntime.model.kernel_executor import KernelExecutor

PREFILLS = (53, 257, 937)
POSITIONS = (64, 1000)
_STEPS = 8  # tokens decoded in a round
Speeds = dict[tuple[str, int], list[float]]


def measure(model: OpenedModel, settings: KernelSettings, rounds: int) -> dict[str, dict[int, float]]:
    """What is measured → threads → median tokens per second."""
    build_native()
    threads = sorted({1, usable_cores()})
    executor = run_without_waiting(
        native_executor.build(
            model.config,
            model.weights,
            context=min(1024, model.config.context_length),
            threads=threads[-1],
            settings=settings,
        )
    )
    speeds: Speeds = {}
    for number in range(rounds + 1):
        for executor.threads in threads:
            found: Speeds = {}
            _one_round(executor, found, executor.threads)
            if number:  # the first only warms caches and pages
                for key, values in found.items():
                    speeds.setdefault(key, []).extend(values)
    executor.close()
    names = dict.fromkeys(name for name, _ in speeds)
    return {name: {n: statistics.median(speeds[name, n]) for n in threads} for name in names}


def _one_round(executor: KernelExecutor, speeds: Speeds, threads: int) -> None:
    ids = [7 + n % 1000 for n in range(max(*PREFILLS, *POSITIONS))]
    for n in PREFILLS:
        executor.reset()
        begun = time.perf_counter()
        executor.prefill(ids[:n])
        speeds.setdefault((f"prefill {n}", threads), []).append(n / (time.perf_counter() - begun))
    for position in POSITIONS:
        executor.reset()
        executor.prefill(ids[:position])
        for token in ids[:_STEPS]:
            begun = time.perf_counter()
            executor.forward([token])
            speeds.setdefault((f"decode @{position}", threads), []).append(1 / (time.perf_counter() - begun))


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description="Measures the native kernels.")
    parser.add_argument("--model", type=Path, help="a GGUF file (default: the site's default model)")
    parser.add_argument("--precise", action="store_true", help="16-bit activations for 4-bit weights")
    parser.add_argument("--kv", choices=("INT16", "INT8"), default="INT16", help="the cache (default %(default)s)")
    parser.add_argument("--busy", action="store_true", help="with one core taken by another process")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default %(default)s)")
    options = parser.parse_args()
    default = read_pins().model
    model = open_model(options.model or cache.obtain([default])[default.name])
    with busy_core(wanted=options.busy):
        speeds = measure(model, KernelSettings(precise=options.precise, kv=options.kv), options.rounds)
    threads = list(next(iter(speeds.values())))
    print("| tokens per second |" + "".join(f" {n} threads |" for n in threads))
    print("|---|" + "---|" * len(threads))
    for name, found in speeds.items():
        print(f"| {name} |" + "".join(f" {found[n]:.0f} |" for n in threads))
    print(json.dumps({"model": model.file_name, "machine": platform.machine(), "busy": options.busy, "speeds": speeds}))
    return 0
