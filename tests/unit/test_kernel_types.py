"""Whole models whose matrices are stored in each type of model files: the kernels against numpy on the same file."""

from __future__ import annotations

import asyncio
import dataclasses
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pyruntime.engine import Engine
from pyruntime.errors import FormatError
from pyruntime.formats.gguf import read_gguf
from pyruntime.formats.source import BytesSource, run_without_waiting
from pyruntime.formats.tensor_types import TENSOR_TYPES
from pyruntime.model.config import config_from_gguf
from pyruntime.model.kernel_executor import build_kernel_executor
from pyruntime.model.kernel_plan import KernelSettings
from pyruntime.model.native_host import NativeHost, best_library, load_library
from pyruntime.model.numpy_executor import build_numpy_executor
from pyruntime.weights.stored import StoredWeights
from tests.kernel_lab import GIVEN_LIBRARY, LabHost, make_backend
from tests.parity.random_models import MODELS, RandomModel, gguf_file, weights
from tests.stored_tensors import SCALES
from tests.tiny_model import tiny_gguf
from tooling import kernels

# Rows of 256 and 512 values, because blocks of K types have 256.
SIZES = {"n_layers": 2, "hidden": 256, "n_heads": 4, "n_kv_heads": 2, "head_size": 64, "ffn": 512, "norm_eps": 1e-5}
MODEL = RandomModel(dataclasses.replace(MODELS["llama, 3 queries per key, tied"].config, **SIZES), seed=11, n_ids=40)
# How far the largest logit of any position may be off, as a share of the position's logits. Rounding weights to 8 bits
# costs 0.05 to 0.07, the float16 scales of Q4_K 0.006, and all else 0.002.
TOLERANCES = dict.fromkeys(TENSOR_TYPES, 0.12) | {
    "Q8_0": 0.005,
    "Q4_0": 0.005,
    "Q4_1": 0.005,
    "Q5_0": 0.005,
    "Q4_K": 0.015,
}


def mixed(name):
    """The types that Q4_K_M files have: some matrices in Q6_K, all others in Q4_K."""
    return "Q6_K" if name == "embedding" or name.endswith((".v", "0.down")) else "Q4_K"


@cache
def model_file(type_of):
    return gguf_file(MODEL, weights(MODEL), type_of if callable(type_of) else lambda name: type_of)


def opened(data):
    source = BytesSource(data, "m.gguf")
    file = run_without_waiting(read_gguf(source))
    return config_from_gguf(file.metadata, file.tensors, file.name), StoredWeights.of_gguf(file, source)


def native_host():
    return NativeHost(load_library(Path(GIVEN_LIBRARY) if GIVEN_LIBRARY else best_library(kernels.build_native())), 1)


def by_kernels(data, host=None, *, precise=True):
    executor = asyncio.run(
        build_kernel_executor(
            host or native_host(), *opened(data), context=64, settings=KernelSettings(precise=precise)
        )
    )
    logits = executor.forward_all(MODEL.ids)
    executor.close()
    return logits


def by_numpy(data):
    return asyncio.run(build_numpy_executor(*opened(data), context=64)).forward_all(MODEL.ids)


def relative_error(logits, expected):
    return float((np.abs(logits - expected).max(axis=-1) / np.sqrt(np.square(expected).mean(axis=-1))).max())


@pytest.mark.parametrize("type_name", TENSOR_TYPES)
def test_logits_are_numpys_on_the_same_file(type_name):
    data = model_file(type_name)
    assert relative_error(by_kernels(data), by_numpy(data)) < TOLERANCES[type_name]


@pytest.mark.parametrize("precise", [True, False])
def test_logits_are_numpys_on_a_file_of_mixed_types(precise):
    data = model_file(mixed)
    tensors = opened(data)[1].tensors
    assert {tensor.type for tensor in tensors.values()} == {"Q4_K", "Q6_K", "F32"}
    assert relative_error(by_kernels(data, precise=precise), by_numpy(data)) < 0.12


@pytest.mark.parametrize(
    ("type_of", "types"),
    [(mixed, ("Q6_K",)), ("Q8_0", ()), ("Q4_K", ()), ("F16", ("F16",)), ("Q5_0", ("Q5_0",))],
    ids=["mixed", "Q8_0", "Q4_K", "F16", "Q5_0"],
)
def test_an_executor_tells_which_types_became_8_bit_weights(type_of, types):
    config, weights = opened(model_file(type_of))
    executor = asyncio.run(build_kernel_executor(native_host(), config, weights, context=8))
    executor.close()
    assert executor.in_8_bits == types
    assert asyncio.run(build_numpy_executor(config, weights, context=8)).in_8_bits == ()


def test_the_engine_tells_what_its_executor_does():
    kernels.build_native()
    source = BytesSource(tiny_gguf(), "tiny.gguf")
    assert asyncio.run(Engine.load(source, executor="native")).in_8_bits == ("F32",)
    assert asyncio.run(Engine.load(source, executor="numpy")).in_8_bits == ()


@pytest.mark.skipif(bool(GIVEN_LIBRARY), reason="this run is about one library")
@pytest.mark.parametrize("backend", ["kernels_simd.wasm", "kernels_relaxed_shared.wasm"])
def test_a_webassembly_build_in_node_gives_the_native_builds_logits(tmp_path, backend):
    data, node = model_file(mixed), make_backend(backend, tmp_path)
    logits = by_kernels(data, LabHost(node))
    node.close()
    assert relative_error(logits, by_kernels(data)) < 5e-3


@pytest.mark.parametrize("build", [by_kernels, by_numpy])
@pytest.mark.parametrize(("type_name", "start"), [(name, start) for name, places in SCALES.items() for start in places])
def test_a_scale_that_is_not_finite_is_refused_with_the_tensors_name(build, type_name, start):
    data = bytearray(model_file(type_name))
    tensors = opened(bytes(data))[1].tensors
    place = tensors["blk.1.ffn_up.weight"].offset + 100 * TENSOR_TYPES[type_name].block_bytes + start
    data[place : place + 2] = np.float16(np.nan).tobytes()
    with pytest.raises(FormatError, match=r"^m.gguf: blk.1.ffn_up.weight: a scale .* \(allowed: finite numbers\)"):
        build(bytes(data))


@pytest.mark.parametrize(
    ("type_name", "words"),
    [
        ("Q5_K", r"a value is too large for 8-bit weights \(allowed: at most 8 million\)"),
        ("Q4_K", r"a scale or minimum is too large for 4-bit weights \(allowed: at most 65,504\)"),
    ],
)
def test_weights_too_large_for_the_kernels_are_refused_with_the_tensors_name(type_name, words):
    data = bytearray(model_file(type_name))
    tensors = opened(bytes(data))[1].tensors
    place = tensors["blk.0.attn_q.weight"].offset
    block_bytes = TENSOR_TYPES[type_name].block_bytes
    data[place : place + block_bytes] = np.float16(60_000).tobytes() * 2 + bytes([0x3F] * (block_bytes - 4))
    with pytest.raises(FormatError, match=rf"^m.gguf: blk.0.attn_q.weight: {words}"):
        by_kernels(bytes(data))
