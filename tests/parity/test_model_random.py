"""The forward pass against transformers in float32, on random models of every family (values in `data/`).

"Within 1e-4" means here: no logit of a position is off by more than 1e-4 of the root mean square of that position's
logits. (The largest logit would be too lenient a measure: with a tied head it is the input's own, and far above the rest.)
"""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pyruntime.formats.gguf import read_gguf
from pyruntime.formats.model_files import CONFIG, TOKENIZER, WEIGHTS, Layout, ModelFiles
from pyruntime.formats.safetensors_shards import read_tensors
from pyruntime.formats.source import BytesSource, run_without_waiting
from pyruntime.model.config import read_gguf_config
from pyruntime.model.hf_config import config_from_json, parse_config
from pyruntime.model.numpy_executor import NumpyExecutor, build_numpy_executor
from pyruntime.model.numpy_products import BLAS, EINSUM
from pyruntime.model.rope import DividedFrequencies, Llama3Scaling
from pyruntime.weights.stored import StoredWeights
from tests.parity.random_models import MODELS, digest, gguf_file, hf_files, rope_divisors, weights

REFERENCE = json.loads((Path(__file__).parent / "data" / "random_models.json").read_text(encoding="utf-8"))["models"]
TOLERANCE = 1e-4

pytestmark = pytest.mark.parametrize("name", MODELS)


def relative_error(logits, expected) -> float:
    return float((np.abs(logits - expected).max(axis=-1) / np.sqrt(np.square(expected).mean(axis=-1))).max())


def reference(name) -> np.ndarray:
    return np.array(REFERENCE[name]["logits"], np.float32)


@cache
def executor(name) -> NumpyExecutor:
    """The model, written as a GGUF file and read back by the runtime's own reader."""
    model = MODELS[name]
    source = BytesSource(gguf_file(model, weights(model)), f"{name}.gguf")
    file = run_without_waiting(read_gguf(source))
    config = run_without_waiting(read_gguf_config(file, source))
    stored = StoredWeights.of_gguf(file, source)
    return run_without_waiting(build_numpy_executor(config, stored, context=model.config.context_length))


@pytest.fixture
def fresh(name) -> NumpyExecutor:
    made = executor(name)
    made.reset()
    return made


def in_parts(executor, ids, sizes) -> np.ndarray:
    """The logits of all `ids`, given to the executor in parts of `sizes`, over and over."""
    parts, start = [], 0
    while start < len(ids):
        size = sizes[len(parts) % len(sizes)]
        parts.append(executor.forward_all(ids[start : start + size]))
        start += size
    return np.concatenate(parts)


def test_the_weights_are_those_the_reference_was_made_with(name):
    assert digest(weights(MODELS[name])) == REFERENCE[name]["weights_sha256"]


def test_the_configuration_read_from_the_file_is_the_one_written(fresh, name):
    written, read = MODELS[name].config, fresh._config
    assert read.norm_eps == pytest.approx(written.norm_eps, rel=1e-6)  # stored as float32
    expected = written.rope_scaling
    if isinstance(expected, Llama3Scaling):  # of which a converter stores only the effect
        expected = DividedFrequencies(tuple(map(float, rope_divisors(written))))
    assert read == dataclasses.replace(written, norm_eps=read.norm_eps, rope_scaling=expected)


def test_logits_of_the_published_files_equal_the_reference(name):
    model = MODELS[name]
    content = hf_files(model, weights(model))
    files = ModelFiles(name, {file: BytesSource(data, file) for file, data in content.items()})
    config = config_from_json(parse_config(content[CONFIG], CONFIG), CONFIG)
    assert config == dataclasses.replace(model.config, rope_layout="half")
    tensors = run_without_waiting(read_tensors(files, Layout(WEIGHTS, TOKENIZER)))
    stored = StoredWeights.of_folder(files, tensors, tied=config.tied_embeddings)
    made = run_without_waiting(build_numpy_executor(config, stored, context=2048))
    logits = made.forward_all(model.ids)[model.compared_positions()]
    assert relative_error(logits, reference(name)) < TOLERANCE


def test_logits_equal_the_reference_at_all_positions(fresh, name):
    logits = fresh.forward_all(MODELS[name].ids)[MODELS[name].compared_positions()]
    assert relative_error(logits, reference(name)) < TOLERANCE


def test_logits_equal_the_reference_after_a_prefill_in_uneven_parts(fresh, name):
    logits = in_parts(fresh, MODELS[name].ids, (1, 3, 7, 129))[MODELS[name].compared_positions()]
    assert relative_error(logits, reference(name)) < TOLERANCE


def test_logits_equal_the_reference_after_truncation(fresh, name):
    model = MODELS[name]
    kept = model.n_ids // 3
    fresh.forward_all(model.ids)
    fresh.truncate(kept)
    fresh.forward_all([0, 1, 2, 3, 4])  # a continuation that is then taken back
    fresh.truncate(kept)
    logits = fresh.forward_all(model.ids[kept:])
    compared = [(row, position) for row, position in enumerate(model.compared_positions()) if position >= kept]
    rows, positions = (list(column) for column in zip(*compared, strict=True))
    assert relative_error(logits[[position - kept for position in positions]], reference(name)[rows]) < TOLERANCE


def test_logits_of_the_last_position_equal_the_reference_in_step_by_step_decoding(fresh, name):
    model = MODELS[name]
    first = model.n_ids - 6
    fresh.prefill(model.ids[:first])
    logits = np.stack([fresh.forward([token]) for token in model.ids[first:]])
    last = model.compared_positions()[-1] - first
    assert relative_error(logits[last], reference(name)[-1]) < TOLERANCE
    fresh.truncate(first)
    assert relative_error(logits, fresh.forward_all(model.ids[first:])) < TOLERANCE


def test_logits_equal_the_reference_with_the_browsers_products(fresh, name):
    model = MODELS[name]
    browser = NumpyExecutor(fresh._config, fresh._weights, context=2048, file="", products=EINSUM)
    native = NumpyExecutor(fresh._config, fresh._weights, context=2048, file="", products=BLAS)
    ids = model.ids[:200]
    logits = in_parts(browser, ids, (3, 70, 1))
    assert relative_error(logits, in_parts(native, ids, (200,))) < TOLERANCE
    compared = [(row, position) for row, position in enumerate(model.compared_positions()) if position < 200]
    rows, positions = (list(column) for column in zip(*compared, strict=True))
    assert relative_error(logits[positions], reference(name)[rows]) < TOLERANCE
