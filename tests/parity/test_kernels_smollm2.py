"""The default model by the native kernels against the float32 reference: teacher-forced, on the committed texts and chats."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pyruntime.formats.source import run_without_waiting
from pyruntime.model import native_executor
from pyruntime.model.kernel_plan import KernelSettings
from pyruntime.model.numpy_executor import build_numpy_executor
from pyruntime.opening import open_model
from tooling.kernels import build_native

REFERENCE = json.loads((Path(__file__).parent / "data" / "smollm2_logits.json").read_text(encoding="utf-8"))
CASES = [{key: np.array(value) for key, value in case.items()} for case in REFERENCE["cases"]]


@pytest.fixture(scope="module")
def model(default_model):
    build_native()
    return open_model(default_model)


def native(model, **settings):
    return run_without_waiting(
        native_executor.build(model.config, model.weights, context=512, settings=KernelSettings(**settings), threads=2)
    )


@pytest.fixture(scope="module")
def reference(model):
    executor = run_without_waiting(build_numpy_executor(model.config, model.weights, context=512))
    found = []
    for case in CASES:
        executor.reset()
        found.append(log_probabilities(executor.forward_all(case["ids"])))
    return np.concatenate(found)


def log_probabilities(logits):
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


# About twice what `python -m benchmarks quality` finds on a longer text.
@pytest.mark.parametrize(
    ("settings", "most_divergence", "least_agreement"),
    [({}, 0.0042, 0.95), ({"precise": True}, 0.00005, 0.995), ({"kv": "INT8"}, 0.008, 0.94)],
    ids=str,
)
def test_distributions_are_close_to_the_references(model, reference, settings, most_divergence, least_agreement):
    executor = native(model, **settings)
    found = []
    for case in CASES:
        executor.reset()
        found.append(log_probabilities(executor.forward_all(case["ids"])))
    executor.close()
    kernels = np.concatenate(found)
    divergence = (np.exp(reference) * (reference - kernels)).sum(axis=1).mean()
    assert 0 <= divergence < most_divergence
    assert (kernels.argmax(axis=1) == reference.argmax(axis=1)).mean() > least_agreement


def test_step_by_step_decoding_gives_the_references_answer_where_it_leads(model):
    executor = native(model, precise=True)
    for case in CASES:
        prompt, answer = np.split(case["ids"], [case["prompt_length"]])
        if not len(answer):
            continue
        executor.reset()
        executor.prefill(prompt[:-1])
        leads = (case["top_logits"][:, 0] - case["top_logits"][:, 1])[len(prompt) - 1 :]
        for previous, expected, lead in zip([prompt[-1], *answer], answer, leads, strict=False):
            found = executor.forward([previous]).argmax()
            assert lead < 0.1 or found == expected
    executor.close()
