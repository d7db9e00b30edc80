"""The default model's logits against transformers in float32 on the same dequantised weights.

`data/smollm2_logits.json` has our own texts and chats (`texts.py`); the six chats of the shared folder are checked where
it is present. All is teacher-forced: where two tokens nearly tie, greedy texts may part, logits may not.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from pyruntime.formats.gguf import read_gguf
from pyruntime.formats.source import FileSource, run_without_waiting
from pyruntime.model.config import config_from_gguf
from pyruntime.model.numpy_executor import build_numpy_executor
from pyruntime.weights.stored import StoredWeights

REFERENCE = json.loads((Path(__file__).parent / "data" / "smollm2_logits.json").read_text(encoding="utf-8"))
TOLERANCE = 1e-4
CLEAR_LEAD = 0.01  # of the first token over the second, in logits


@pytest.fixture(scope="module")
def executor(default_model):
    source = FileSource(default_model)
    file = run_without_waiting(read_gguf(source))
    config = config_from_gguf(file.metadata, file.tensors, file.name)
    return run_without_waiting(build_numpy_executor(config, StoredWeights.of_gguf(file, source), context=512))


CASES = [{key: np.array(value) for key, value in case.items()} for case in REFERENCE["cases"]]
CHATS = [case for case in CASES if len(case["ids"]) > case["prompt_length"]]


@pytest.fixture(scope="module", params=CASES, ids=range(len(CASES)))
def case(request):
    return request.param


@pytest.fixture(scope="module")
def logits(executor, case):
    executor.reset()
    return executor.forward_all(case["ids"])


def test_the_reference_was_made_with_the_default_model(default_model):
    assert hashlib.sha256(Path(default_model).read_bytes()).hexdigest() == REFERENCE["model_sha256"]


def test_the_ten_largest_logits_of_every_position_equal_the_reference(logits, case):
    found = np.take_along_axis(logits, case["top_ids"], axis=1)
    assert np.abs(found / case["top_logits"] - 1).max() < TOLERANCE


def test_the_logsumexp_of_every_position_equals_the_reference(logits, case):
    largest = logits.max(axis=1)
    found = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1))
    assert np.abs(found / case["logsumexp"] - 1).max() < TOLERANCE


def test_the_likeliest_token_is_the_references_wherever_it_leads_clearly(logits, case):
    clear = case["top_logits"][:, 0] - case["top_logits"][:, 1] > CLEAR_LEAD
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(logits.argmax(axis=1)[clear], case["top_ids"][clear, 0])


@pytest.mark.parametrize("chat", CHATS, ids=range(len(CHATS)))
def test_the_greedy_answer_is_the_references_when_decoded_step_by_step(executor, chat):
    prompt, answer = np.split(chat["ids"], [chat["prompt_length"]])
    assert len(answer) == 32
    executor.reset()
    executor.prefill(prompt[:-1])
    leads = (chat["top_logits"][:, 0] - chat["top_logits"][:, 1])[len(prompt) - 1 :]
    for previous, expected, lead in zip([prompt[-1], *answer], answer, leads, strict=False):
        found = executor.forward([previous]).argmax()
        assert lead <= CLEAR_LEAD or found == expected


def test_the_shared_chats_have_the_references_logits_and_greedy_tokens(executor, shared):
    cases = json.loads((shared / "peers" / "reference_smollm2.json").read_text(encoding="utf-8"))["cases"]
    assert len(cases) == 6
    for chat in cases:
        prompt, expected = chat["prompt_ids"], chat["f32"]
        executor.reset()
        executor.prefill(prompt[:-1])
        logits = executor.forward_all([prompt[-1], *expected["greedy"][:-1]])
        ids, values = zip(*expected["top10"], strict=True)
        np.testing.assert_allclose(logits[0, list(ids)], values, rtol=0, atol=1e-3)
        clear = np.array(expected["top1_minus_top2"]) > CLEAR_LEAD
        np.testing.assert_array_equal(logits.argmax(axis=1)[clear], np.array(expected["greedy"])[clear])
