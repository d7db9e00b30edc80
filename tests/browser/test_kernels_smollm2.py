"""The default model by the kernels in the site's Pyodide: how it gets into their memory, threads, and its logits.

`tests/parity` does the same natively.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from pyruntime.formats.source import FileSource, run_without_waiting
from pyruntime.model import kernel_abi
from pyruntime.model.numpy_executor import build_numpy_executor
from pyruntime.opening import read_model
from tests.browser.kernels_python import SETUP, helpers

REFERENCE = "tests/parity/data/smollm2_logits.json"


@pytest.fixture(scope="module")
def model(default_model):
    """The default model, opened natively."""
    return run_without_waiting(read_model(FileSource(default_model)))


@pytest.fixture(scope="module")
def python(run_in_pyodide):
    """`run_in_pyodide` with the default model loaded as the page loads it: `real`; `read` and `placed` are the sizes of what was
    read of it into Python and into the kernels' memory.
    """
    run_in_pyodide(SETUP + "None")
    run_in_pyodide(
        """
        read, placed = [], []
        plain = BlobSource.read, BlobSource.read_into
        BlobSource.read = lambda self, offset, n: (read.append(n), plain[0](self, offset, n))[1]
        BlobSource.read_into = lambda self, offset, to: (placed.append(to.byteLength), plain[1](self, offset, to))[1]
        model = await obtain_model("seed/default.json", page_url=page_url)
        real = await Engine.load(model.model_files(), context=512, threads=3)
        BlobSource.read, BlobSource.read_into = plain
        None
        """
    )
    yield run_in_pyodide
    run_in_pyodide("real.close()")


def test_stored_weights_reach_the_kernels_without_passing_through_python(python, model, default_model):
    class Counting(FileSource):
        n_bytes = 0

        async def read(self, offset, length):
            self.n_bytes += length
            return await super().read(offset, length)

    header = Counting(default_model)
    run_without_waiting(read_model(header))
    vectors = sum(tensor.nbytes for tensor in model.tensors.values() if len(tensor.shape) == 1)
    matrices = sum(tensor.nbytes for tensor in model.tensors.values() if len(tensor.shape) > 1)
    assert python("[real.executor_name, sum(read), sum(placed)]") == ["wasm", header.n_bytes + vectors, matrices]


def test_as_many_threads_compute_as_were_asked_for_and_helpers_wait_inside_the_kernels(python):
    assert python("real._executor._host.threads") == 3
    assert len(helpers(python)) == 2
    word = kernel_abi.control_word("job_sleepers")
    python.page.evaluate(
        "addEventListener('posted', ({ detail: { word } }) => { window.words = new Int32Array(word.buffer, word.byteOffset, 64) })"
    )
    python("run_js('(word) => postMessage({ word })')(real.stop_word())")
    python.page.wait_for_function(f"window.words && Atomics.load(words, {word}) === 2")


def test_logits_are_the_same_bits_for_any_number_of_threads(python):
    found = python(
        """
        found = []
        for real._executor.threads in (1, 2, 3):
            digests = [digest(real.logits(ids))]  # many tokens at a time, then one
            digests += [digest(real._executor.forward([token])) for token in ids[:8]]
            found.append(digests)
        real._executor.threads = None
        found
        """
    )
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == 9


@pytest.fixture(scope="module")
def cases(python, model, repo_root, tmp_path_factory):
    """The ids of the committed texts and chats; `reference` in the browser has the float32 logits after all of them."""
    executor = run_without_waiting(build_numpy_executor(model.config, model.weights, context=512))
    found = [case["ids"] for case in json.loads((repo_root / REFERENCE).read_text(encoding="utf-8"))["cases"]]
    logits = []
    for ids in found:
        executor.reset()
        logits.append(executor.forward_all(ids))
    path = tmp_path_factory.mktemp("reference") / "logits"
    path.write_bytes(np.concatenate(logits).tobytes())
    python(
        """
        data = await (await pyfetch(address)).bytes()
        reference = np.frombuffer(data, np.float32).reshape(-1, real._executor.vocab_size)

        def log_probabilities(logits):
            shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
            return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        """,
        address=python.serve(path, "logits"),
    )
    yield found
    python("del reference, data")


# The bounds are those of the native kernels in tests/parity/test_kernels_smollm2.py.
@pytest.mark.parametrize(
    ("precise", "most_divergence", "least_agreement"), [(False, 0.0042, 0.95), (True, 0.00005, 0.995)]
)
def test_distributions_are_close_to_the_references(python, cases, precise, most_divergence, least_agreement):
    divergence, agreement = python(
        """
        compared = await Engine.load(model.model_files(), executor="wasm", context=512, precise=precise)
        divergences, agreements, start = [], [], 0
        for case in cases:
            expected = log_probabilities(reference[start : start + len(case)])
            found = log_probabilities(compared.logits(case))
            divergences.append((np.exp(expected) * (expected - found)).sum(axis=1))
            agreements.append(found.argmax(axis=1) == expected.argmax(axis=1))
            start += len(case)
        compared.close()
        [np.concatenate(divergences).mean(), np.concatenate(agreements).mean()]
        """,
        precise=precise,
        cases=cases,
    )
    assert 0 <= divergence < most_divergence
    assert agreement > least_agreement
