"""The kernel executor, natively: whole models against numpy, the cache, threads, stopping, memory, refusals."""

from __future__ import annotations

import asyncio
import gc
import threading
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pyruntime.engine import Engine
from pyruntime.errors import (
    BusyError,
    ContextOverflowError,
    FormatError,
    OutOfMemoryError,
    ParameterError,
    StoppedError,
    UnsupportedError,
)
from pyruntime.formats.gguf import read_gguf
from pyruntime.formats.source import BytesSource, run_without_waiting
from pyruntime.model import families, native_executor
from pyruntime.model.config import read_gguf_config
from pyruntime.model.decoder import Weights
from pyruntime.model.kernel_abi import FLAGS, MAX_TOKENS, OPERATIONS, header, operation_number
from pyruntime.model.kernel_executor import build_kernel_executor
from pyruntime.model.kernel_layout import matrix_bytes
from pyruntime.model.kernel_plan import KernelSettings, plan_memory
from pyruntime.model.kernel_self_test import computes_rightly
from pyruntime.model.native_host import NativeHost, best_library, load_library
from pyruntime.model.numpy_executor import NumpyExecutor
from pyruntime.model.program_check import ProgramError, check_program
from pyruntime.weights.stored import StoredWeights
from tests.kernel_lab import BACKENDS, GIVEN_LIBRARY, LabHost, make_backend, unpack
from tests.parity.random_models import MODELS, gguf_file, weights
from tests.tiny_model import tiny_gguf
from tooling import kernels

PRECISE = KernelSettings(precise=True)
NAMES = [name for name in MODELS if "0.6B" not in name]


@cache
def library():
    return load_library(Path(GIVEN_LIBRARY) if GIVEN_LIBRARY else best_library(kernels.build_native()))


@cache
def opened(name):
    source = BytesSource(gguf_file(MODELS[name], weights(MODELS[name])), f"{name}.gguf")
    file = run_without_waiting(read_gguf(source))
    return run_without_waiting(read_gguf_config(file, source)), StoredWeights.of_gguf(file, source)


def build(name=NAMES[0], *, host=None, threads=1, context=2048, settings=PRECISE):
    config, stored = opened(name)
    host = host or NativeHost(library(), threads)
    return asyncio.run(build_kernel_executor(host, config, stored, context=context, settings=settings))


def same_weights(executor, name):
    """The numpy executor on the weights as the kernels have them."""
    config, _ = opened(name)
    arrays = {}
    for weight_name, weight in executor._plan.weights.items():
        if weight.format == "F32":
            arrays[weight_name] = executor._host.read(weight.place, 4 * weight.columns).view(np.float32)
        else:
            panels = executor._host.read(weight.place, matrix_bytes(weight.format, weight.rows, weight.columns))
            arrays[weight_name] = unpack(panels, weight.format, weight.rows, weight.columns)
    return NumpyExecutor(config, Weights.from_names(arrays, config.n_layers), context=2048, file="")


def relative_error(logits, expected):
    return float((np.abs(logits - expected).max(axis=-1) / np.sqrt(np.square(expected).mean(axis=-1))).max())


def test_the_header_is_the_one_the_table_makes(repo_root):
    assert (repo_root / "kernels" / "abi.h").read_text() == header()


@pytest.mark.parametrize("name", NAMES)
def test_precise_logits_equal_numpys_on_the_same_weights(name):
    executor, ids = build(name), MODELS[name].ids[:200]
    expected = same_weights(executor, name).forward_all(ids)
    assert relative_error(executor.forward_all(ids), expected) < 5e-3
    executor.reset()
    assert relative_error(executor.forward(ids), expected[-1]) < 5e-3
    executor.close()


@pytest.mark.parametrize("threads", [1, 2])
def test_logits_equal_numpys_at_positions_for_which_the_rotation_table_has_grown(threads):
    name = NAMES[0]
    executor, ids = build(name, threads=threads), (MODELS[name].ids * 20)[:1030]
    reference = same_weights(executor, name)
    for one in (executor, reference):
        one.prefill(ids[:1020])
    for token in ids[1020:]:
        executor.begin(token)
        _, found = executor.forward_candidates([token], below=np.inf, most=None)
        assert relative_error(found, reference.forward([token])) < 5e-3
    executor.close()


@pytest.mark.parametrize("kv", ["INT16", "INT8"])
def test_logits_with_either_cache_are_close_to_numpys(kv):
    name = "SmolLM2-135M's sizes"
    executor = build(name, settings=KernelSettings(kv=kv))
    ids = MODELS[name].ids
    error = relative_error(executor.forward_all(ids), same_weights(executor, name).forward_all(ids))
    assert error < (5e-3 if kv == "INT16" else 0.3)


@pytest.mark.skipif(bool(GIVEN_LIBRARY), reason="this run is about one library")
@pytest.mark.parametrize("backend", ["kernels_simd.wasm", "kernels_relaxed.wasm", "kernels_relaxed_shared.wasm"])
def test_a_webassembly_build_in_node_gives_the_native_builds_logits(tmp_path, backend):
    name = "qwen3, 2 queries per key, tied"
    node = make_backend(backend, tmp_path)
    ids = MODELS[name].ids[:5]
    host = LabHost(node)
    logits = build(name, host=host, context=32).forward_all(ids)
    node.close()
    np.testing.assert_allclose(logits, build(name, context=32).forward_all(ids), rtol=1e-3, atol=2e-3)


def test_logits_do_not_depend_on_chunks_truncation_or_threads():
    name = "llama, 3 queries per key, tied"
    ids = (MODELS[name].ids * 40)[:600]
    one, two = build(name), build(name, threads=3)
    whole = one.forward(ids)
    for executor in (one, two):
        executor.reset()
        executor.prefill(ids[:333])
        executor.prefill([5, 6, 7])  # taken back
        executor.truncate(200)
        executor.prefill(ids[200:-1])
        np.testing.assert_array_equal(executor.forward(ids[-1:]), executor_again(executor, ids))
    np.testing.assert_array_equal(one.forward([1, 2]), two.forward([1, 2]))
    one.reset()
    np.testing.assert_array_equal(one.forward(ids), whole)
    two.close()


def executor_again(executor, ids):
    executor.truncate(len(ids) - 1)
    return executor.forward(ids[-1:])


def test_many_short_runs_by_several_threads_all_end():
    executor = build(threads=4)
    expected = executor.forward([3])
    for _ in range(500):
        executor.reset()
        np.testing.assert_array_equal(executor.forward([3]), expected)
    executor.close()


def test_a_run_can_take_fewer_threads_than_there_are():
    executor = build(threads=3)
    expected = executor.forward([3])
    for executor.threads in (1, 2, 3, 1) * 20:
        executor.reset()
        np.testing.assert_array_equal(executor.forward([3]), expected)
    executor.close()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_stopped_run_leaves_the_cache_as_it_was_and_the_next_one_works(threads):
    executor = build(threads=threads)
    expected = executor.forward([1, 2, 3])
    executor.stop()
    with pytest.raises(StoppedError):
        executor.forward([4] * 100)
    assert executor.length == 3
    executor.reset()
    np.testing.assert_array_equal(executor.forward([1, 2, 3]), expected)
    executor.close()


def test_a_long_prefill_is_stopped_from_another_thread():
    executor = build("SmolLM2-135M's sizes", threads=2)
    begun = threading.Event()

    def stop():
        begun.wait()
        executor.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    begun.set()

    def prefill_for_ever():
        while True:
            executor.reset()
            executor.prefill([1] * 500)

    with pytest.raises(StoppedError):
        prefill_for_ever()
    stopper.join()
    executor.close()


def test_helpers_go_home_when_an_executor_is_forgotten():
    before = threading.active_count()
    executor = build(threads=3)
    assert threading.active_count() == before + 2
    del executor
    gc.collect()
    assert threading.active_count() == before


@pytest.mark.parametrize("threads", [1, 3])
def test_a_token_that_was_begun_gives_what_it_would_have_given(threads):
    executor = build(threads=threads)
    executor.prefill([1, 2, 3])
    expected = [executor.forward_candidates([token], below=np.inf, most=None)[1] for token in (4, 5, 6)]
    executor.truncate(3)
    for token, values in zip((4, 5, 6), expected, strict=True):
        executor.begin(token)
        np.testing.assert_array_equal(executor.forward_candidates([token], below=np.inf, most=None)[1], values)
    executor.close()


def test_what_was_begun_and_is_not_wanted_leaves_no_trace():
    executor = build(threads=3)
    executor.prefill([1, 2, 3])
    expected = executor.forward([9])
    for others in ([9], [5, 9], [9]):  # another token, another run, the same token at another place
        executor.truncate(3)
        executor.begin(7 if others == [9] else 5)
        assert executor.length == 3
        executor.truncate(2)
        executor.prefill([3])
        np.testing.assert_array_equal(executor.forward([9]), expected)
    executor.begin(4)
    with pytest.raises(ParameterError):
        executor.begin(101)
    executor.begin(4)
    executor.close()


def test_what_was_begun_can_be_stopped():
    executor = build(threads=2)
    executor.prefill([1, 2, 3])
    executor.begin(4)
    executor.stop()
    with pytest.raises(StoppedError):
        executor.forward([4])
    assert executor.length == 3
    executor.close()


def test_candidates_are_those_of_the_logits():
    executor = build()
    logits = executor.forward([1, 2, 3])
    executor.reset()
    ids, values = executor.forward_candidates([1, 2, 3], below=0.5, most=50)
    np.testing.assert_array_equal(ids, np.flatnonzero(logits >= logits.max() - 0.5))
    np.testing.assert_array_equal(values, logits[ids])
    assert len(executor.forward_candidates([4], below=np.inf, most=5)[0]) == 5
    assert len(executor.forward_candidates([4], below=np.inf, most=None)[0]) == executor.vocab_size


def test_wrong_ids_and_lengths_are_refused():
    executor = build(context=10)
    for ids in ([], [101], [-1], [1.5], [[1]]):
        with pytest.raises(ParameterError):
            executor.forward(ids)
    executor.prefill([1] * 8)
    with pytest.raises(ContextOverflowError) as error:
        executor.forward([1] * 3)
    assert (error.value.needed, error.value.have) == (11, 10)
    with pytest.raises(ParameterError):
        executor.truncate(9)
    assert executor.length == 8


def test_room_is_asked_for_with_the_arenas_size_before_it_is_taken():
    config, stored = opened(NAMES[0])
    host, asked = NativeHost(library(), 1), []

    async def refuse(n_bytes):
        asked.append(n_bytes)
        raise BusyError("no room")

    with pytest.raises(BusyError):
        asyncio.run(build_kernel_executor(host, config, stored, context=64, settings=PRECISE, admit=refuse))
    assert asked == [plan()[1].n_bytes]
    assert host._memory is None


def test_weights_that_are_not_finite_are_refused_by_name():
    arrays = weights(MODELS[NAMES[0]])
    arrays["layers.1.up"][3, 4] = np.nan
    source = BytesSource(gguf_file(MODELS[NAMES[0]], arrays), "bad.gguf")
    file = run_without_waiting(read_gguf(source))
    config, stored = run_without_waiting(read_gguf_config(file, source)), StoredWeights.of_gguf(file, source)
    with pytest.raises(FormatError, match=r"bad.gguf: blk.1.ffn_up.weight: .* not finite"):
        asyncio.run(build_kernel_executor(NativeHost(library(), 1), config, stored, context=8))


def plan(settings=PRECISE):
    config, stored = opened(NAMES[0])
    matched = stored.match(families.weight_shapes(config))
    return config, plan_memory(config, matched, 64, settings, takes_bytes=True)


def test_a_program_that_leaves_its_bounds_is_refused():
    config, made = plan()
    limits = {"arena_bytes": made.n_bytes, "writable_from": 1, "vocab_size": config.vocab_size, "context": 64}
    check_program(made.code.words, **limits)
    refused = 0
    for n, row in enumerate(made.code.words):
        names = OPERATIONS[row[0]].fields
        for field in range(len(names)):
            if names[field] == "epsilon":
                continue
            for value in (-2, 0x7FFFFFFF):
                words = made.code.words.copy()
                words[n, 2 + field] = value
                with pytest.raises(ProgramError, match=rf"operation {n}, "):
                    check_program(words, **limits)
                refused += 1
    assert refused > 500
    words = made.code.words.copy()
    words[0, 0] = 99
    with pytest.raises(ProgramError):
        check_program(words, **limits)
    with pytest.raises(ProgramError):
        check_program(made.code.words, **limits | {"writable_from": made.buffers + 1})


def test_more_memory_than_places_can_number_is_refused_with_the_numbers():
    config, stored = opened("SmolLM2-135M's sizes")
    config = replace(config, context_length=2**27)
    host = NativeHost(library(), 1)
    with pytest.raises(OutOfMemoryError, match=r"^kernels: no memory holds 2\d\d,\d{3} MB .*less context"):
        asyncio.run(build_kernel_executor(host, config, stored, context=2**27))


def test_threads_meet_only_where_results_are_needed():
    _, made = plan()
    syncs = made.code.words[:, 1] & FLAGS["SYNC"][0] > 0
    products = made.code.words[:, 0] == operation_number("LINEAR")
    # Queries, keys and values stand side by side, gate and up too: 4 of the 7 products of a layer wait.
    layers = opened(NAMES[0])[0].n_layers
    assert (products & syncs).sum() == 4 * layers + 1
    assert (products & ~syncs).sum() == 3 * layers
    assert syncs.sum() == 12 * layers + 2


def test_runs_have_at_most_as_many_tokens_as_there_is_room_for():
    executor = build()
    runs = []
    run = executor._host.run
    executor._host.run = lambda threads, n, position, wanted: (
        runs.append((n, wanted)) or run(threads, n, position, wanted)
    )
    executor.forward([1] * (MAX_TOKENS + 1))
    executor.forward_all([1] * 9)
    executor.prefill([1])
    assert runs == [(MAX_TOKENS, 0), (1, 1), (8, 8), (1, 1), (1, 0)]


def test_auto_is_native_where_it_is_built_and_numpy_elsewhere(monkeypatch):
    kernels.build_native()
    source = BytesSource(tiny_gguf(), "tiny.gguf")
    assert asyncio.run(Engine.load(source)).executor_name == "native"
    monkeypatch.setattr(native_executor, "_library", lambda: None)
    assert asyncio.run(Engine.load(source)).executor_name == "numpy"
    with pytest.raises(UnsupportedError, match=r"no native kernels here.*build.py"):
        asyncio.run(Engine.load(source, executor="native"))


@pytest.mark.skipif(bool(GIVEN_LIBRARY), reason="this run is about one library")
@pytest.mark.parametrize("name", BACKENDS)
def test_the_self_test_passes_where_the_kernels_compute_rightly(tmp_path, name):
    backend = make_backend(name, tmp_path)
    assert asyncio.run(computes_rightly(LabHost(backend)))
    backend.close()


@pytest.mark.parametrize("name", ["dot product", "not a number"])
def test_the_self_test_fails_where_products_come_out_wrong(name):
    class Wrong(NativeHost):
        def read(self, place, n_bytes):
            found = super().read(place, n_bytes).view(np.float32)
            found[37] = np.nan if name == "not a number" else found[37] + 0.2 * np.abs(found).max()
            return found.view(np.uint8)

    assert not asyncio.run(computes_rightly(Wrong(library(), 1)))


def test_auto_does_not_take_kernels_that_compute_wrongly(monkeypatch):
    path = native_executor._library()
    monkeypatch.setattr(native_executor, "_tested", {path: False})
    told = []
    engine = asyncio.run(Engine.load(BytesSource(tiny_gguf(), "tiny.gguf"), on_notice=told.append))
    assert engine.executor_name == "numpy"
    assert told == [
        f"Computing with numpy, which is many times slower: {path.name} computed wrong products in its self-test"
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"executor": "wasm"}, "executor: wasm: it runs in a browser only"),
        ({"executor": "magic"}, "magic"),
        ({"threads": 0}, "threads"),
        ({"threads": 9}, "threads"),
        ({"threads": True}, "threads"),
        ({"kv_cache": "int4"}, "kv_cache"),
    ],
)
def test_what_cannot_be_had_here_is_refused_by_name(options, words):
    with pytest.raises((UnsupportedError, ParameterError), match=words):
        asyncio.run(Engine.load(BytesSource(tiny_gguf(), "tiny.gguf"), **options))


def test_as_many_threads_compute_as_were_asked_for():
    engine = asyncio.run(Engine.load(BytesSource(tiny_gguf(), "tiny.gguf"), executor="native", threads=3))
    assert engine._executor._host.threads == 3


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, KernelSettings(precise=False, kv="INT16")),
        ({"precise": True}, KernelSettings(precise=True, kv="INT16")),
        ({"kv_cache": "int8"}, KernelSettings(precise=False, kv="INT8")),
    ],
)
def test_precision_and_cache_can_be_chosen(monkeypatch, options, settings):
    chosen = []

    async def build_noted(*arguments, **keywords):
        chosen.append(keywords["settings"])
        return await build_kernel_executor(*arguments, **keywords)

    monkeypatch.setattr(native_executor, "build_kernel_executor", build_noted)
    asyncio.run(Engine.load(BytesSource(tiny_gguf(), "tiny.gguf"), executor="native", **options)).close()
    assert chosen == [settings]
