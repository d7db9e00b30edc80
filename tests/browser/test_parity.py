"""The engine in the browser computes what it computes natively: the logits of the real model.

Teacher-forced, as natively: `tests/parity` has the references and says how they were made.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

TOLERANCE = 1e-4
CLEAR_LEAD = 0.01

LOAD = """
from pyruntime.delivery.obtain_browser import obtain_model
from pyruntime.engine import Engine

model = await obtain_model("seed/default.json", page_url=page_url)
engine = await Engine.load(model.model_files(), executor="numpy", context=512)
engine.context
"""

# (positions, k) logits of the given ids, and the likeliest id of each position
LOGITS = """
import numpy as np

logits = engine.logits(ids)[first:]
[np.take_along_axis(logits, np.array(wanted), axis=1).tolist(), logits.argmax(axis=1).tolist()]
"""


@pytest.fixture(scope="module")
def pyodide(run_in_pyodide):
    """`run_in_pyodide` with the default model as `engine`."""
    assert run_in_pyodide(LOAD) == 512
    return run_in_pyodide


@pytest.fixture(scope="module")
def own_chats(repo_root):
    data = json.loads((repo_root / "tests/parity/data/smollm2_logits.json").read_text(encoding="utf-8"))
    return [case for case in data["cases"] if len(case["ids"]) > case["prompt_length"]]


@pytest.mark.parametrize("chat", [0, 1])
def test_the_logits_of_a_chat_equal_the_float32_reference(pyodide, own_chats, chat):
    case = {key: np.array(value) for key, value in own_chats[chat].items()}
    found, likeliest = pyodide(LOGITS, ids=own_chats[chat]["ids"], first=0, wanted=own_chats[chat]["top_ids"])
    assert np.abs(np.array(found) / case["top_logits"] - 1).max() < TOLERANCE
    clear = case["top_logits"][:, 0] - case["top_logits"][:, 1] > CLEAR_LEAD
    np.testing.assert_array_equal(np.array(likeliest)[clear], case["top_ids"][clear, 0])


@pytest.mark.parametrize("chat", [0, 1])
def test_a_shared_chat_has_the_references_logits_and_greedy_tokens(pyodide, shared, chat):
    case = json.loads((shared / "peers" / "reference_smollm2.json").read_text(encoding="utf-8"))["cases"][chat]
    prompt, expected = case["prompt_ids"], case["f32"]
    ids, values = zip(*expected["top10"], strict=True)
    forced = [*prompt, *expected["greedy"][:-1]]
    found, likeliest = pyodide(LOGITS, ids=forced, first=len(prompt) - 1, wanted=[list(ids)] * len(expected["greedy"]))
    np.testing.assert_allclose(found[0], values, rtol=0, atol=1e-3)
    clear = np.array(expected["top1_minus_top2"]) > CLEAR_LEAD
    np.testing.assert_array_equal(np.array(likeliest)[clear], np.array(expected["greedy"])[clear])


def test_a_failure_in_python_fails_the_test_with_its_traceback(run_in_pyodide):
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_in_pyodide("1 / 0")
