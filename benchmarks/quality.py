"""How faithful the kernels are: `python -m benchmarks quality [--model FILE] [--tokens N] [--llama PYTHON]`.
Prints a table and JSON.

The text is a frozen copy of our own prose (`data/quality.txt`). It is cut into windows that each start from an empty
cache. For every position the kernels' distribution is compared with that of the numpy executor, which computes in float32
on the same weights (dequantised):

    KL      mean of KL(reference ‖ kernels), in nats
    top-1   share of positions where both have the same likeliest token
    ppl     perplexity: exp of the mean negative log probability of the token that follows

What rows of a table mean: `default` is what a user gets, `precise` has 16-bit activations everywhere, `int8 cache` the
smaller KV cache; `llama.cpp` is that on the same file and the same ids, if a Python that has llama-cpp-python is named.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pyruntime.formats.source import run_without_waiting
from pyruntime.model import native_executor
from pyruntime.model.kernel_plan import KernelSettings
from pyruntime.model.numpy_executor import build_numpy_executor
from pyruntime.opening import OpenedModel, open_model
from tooling import cache
from tooling.kernels import build_native
from tooling.pins import read_pins

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pyruntime.model.executor import Executor

TEXT = Path(__file__).parent / "data" / "quality.txt"
MODES = {
    "default": KernelSettings(),
    "precise": KernelSettings(precise=True),
    "default, int8 cache": KernelSettings(kv="INT8"),
    "precise, int8 cache": KernelSettings(precise=True, kv="INT8"),
}


class Score:
    """Sums over positions, compared with the reference."""

    def __init__(self) -> None:
        self._divergence: list[float] = []
        self._same: list[bool] = []
        self._surprise: list[float] = []

    def add(self, reference: NDArray[np.float64], found: NDArray[np.float64], following: NDArray[np.intp]) -> None:
        """Count a window: log probabilities (n, vocab) of both, and the token that follows each but the last."""
        self._divergence += list((np.exp(reference) * (reference - found)).sum(axis=1))
        self._same += list(reference.argmax(axis=1) == found.argmax(axis=1))
        self._surprise += list(-found[np.arange(len(following)), following])

    def result(self) -> dict[str, float]:
        """The means."""
        return {
            "kl": float(np.mean(self._divergence)),
            "top1": float(np.mean(self._same)),
            "perplexity": float(np.exp(np.mean(self._surprise))),
        }


def measure(
    model: OpenedModel, windows: list[list[int]], others: Mapping[str, Sequence[Path]]
) -> dict[str, dict[str, float]]:
    """Mode → its means, and "float32" → the reference's perplexity.

    Args:
        model: what is measured.
        windows: token ids, each from an empty cache.
        others: name of somebody else → a file of logits for each window.
    """
    window = max(map(len, windows))
    common = (model.config, model.weights)
    build_native()
    executors: dict[str, Executor] = {"float32": run_without_waiting(build_numpy_executor(*common, context=window))}
    for name, settings in MODES.items():
        executors[name] = run_without_waiting(native_executor.build(*common, context=window, settings=settings))
    scores = {name: Score() for name in (*executors, *others)}
    for number, ids in enumerate(windows):
        following = np.array(ids[1:])
        reference = _log_probabilities(_logits(executors["float32"], ids))
        for name, executor in executors.items():
            found = reference if name == "float32" else _log_probabilities(_logits(executor, ids))
            scores[name].add(reference, found, following)
        for name, files in others.items():
            scores[name].add(reference, _log_probabilities(np.load(files[number])), following)
        print(f"  window {number + 1} of {len(windows)}", file=sys.stderr, flush=True)
    return {name: score.result() for name, score in scores.items()}


def _logits(executor: Executor, ids: list[int]) -> NDArray[np.float32]:
    executor.reset()
    return executor.forward_all(ids)


def _log_probabilities(found: NDArray[np.float32]) -> NDArray[np.float64]:
    logits = found.astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits


def _by_llama(python: Path, model: Path, windows: list[list[int]], folder: Path) -> list[Path]:
    """Files of llama.cpp's logits, one for each window."""
    script = Path(__file__).with_name("llama_logits.py")
    subprocess.run([python, script, model, folder], input=json.dumps(windows), text=True, check=True)
    return [folder / f"{number}.npy" for number in range(len(windows))]


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description="Compares the kernels with float32 numpy on the same weights.")
    parser.add_argument("--model", type=Path, help="a GGUF file (default: the site's default model)")
    parser.add_argument("--tokens", type=int, default=2560, help="how many tokens of the text (default %(default)s)")
    parser.add_argument("--window", type=int, default=512, help="tokens from an empty cache (default %(default)s)")
    parser.add_argument(
        "--llama", type=Path, metavar="PYTHON", help="a Python that has llama-cpp-python, to be paired with"
    )
    options = parser.parse_args()
    default = read_pins().model
    path = options.model or cache.obtain([default])[default.name]
    model = open_model(path)
    ids = model.tokenizer.encode(TEXT.read_text(encoding="utf-8"))[: options.tokens]
    windows = [ids[start : start + options.window] for start in range(0, len(ids), options.window)]
    with tempfile.TemporaryDirectory() as folder:
        others = {"llama.cpp": _by_llama(options.llama, path, windows, Path(folder))} if options.llama else {}
        results = measure(model, windows, others)
    print("| mode | KL | top-1 | ppl |\n|---|---|---|---|")
    for name, result in results.items():
        print(f"| {name} | {result['kl']:.6f} | {result['top1']:.2%} | {result['perplexity']:.3f} |")
    machine = {"machine": platform.machine(), "python": platform.python_version(), "numpy": np.__version__}
    print(json.dumps({"model": model.file_name, "tokens": options.tokens, **machine, "modes": results}))
    return 0
