from __future__ import annotations

import asyncio
import dataclasses
import tracemalloc

import numpy as np
import pytest

from pyruntime.errors import ContextOverflowError, FormatError, OutOfMemoryError, ParameterError
from pyruntime.formats.gguf import read_gguf
from pyruntime.formats.source import BytesSource, FileSource, run_without_waiting
from pyruntime.model import families, memory, numpy_executor
from pyruntime.model.config import config_from_gguf
from pyruntime.model.memory import memory_limit
from pyruntime.model.numpy_executor import MAX_RUN, NumpyExecutor, build_numpy_executor
from pyruntime.model.numpy_products import BLAS, EINSUM, products_for
from pyruntime.weights import loading
from pyruntime.weights.names import gguf_name
from pyruntime.weights.stored import StoredWeights
from tests.gguf_writer import write_gguf
from tests.parity.random_models import MODELS, gguf_file, weights

MODEL = MODELS["llama, 3 queries per key, tied"]
VOCAB = MODEL.config.vocab_size
DATA = gguf_file(MODEL, weights(MODEL))


class CountingSource(BytesSource):
    """A source that keeps the length of every read."""

    def __init__(self, data=DATA, name="m.gguf"):
        super().__init__(data, name)
        self.reads = []

    async def read(self, offset, length):
        self.reads.append(length)
        return await super().read(offset, length)


def build(source=None, *, context=300, **options) -> NumpyExecutor:
    return asyncio.run(read_and_build(source or BytesSource(DATA, "m.gguf"), context=context, **options))


async def read_and_build(source, **options):
    file = await read_gguf(source)
    config = config_from_gguf(file.metadata, file.tensors, file.name)
    return await build_numpy_executor(config, StoredWeights.of_gguf(file, source), **options)


@pytest.fixture
def executor():
    return build()


def test_an_executor_tells_what_it_is(executor):
    assert (executor.name, executor.context, executor.vocab_size, executor.length) == ("numpy", 300, VOCAB, 0)


def test_forward_gives_the_logits_of_the_last_position_and_forward_all_those_of_all(executor):
    ids = [i % VOCAB for i in range(2 * MAX_RUN + 5)]
    every = executor.forward_all(ids)
    assert every.shape == (len(ids), VOCAB)
    executor.reset()
    last = executor.forward(ids)
    assert last.shape == (VOCAB,)
    assert last.dtype == np.float32
    assert executor.length == len(ids)
    np.testing.assert_allclose(last, every[-1], rtol=1e-5, atol=1e-4)


def test_logits_belong_to_the_caller(executor):
    first = executor.forward([5])
    executor.reset()
    kept = first.copy()
    first[:] = 0
    np.testing.assert_array_equal(executor.forward([5]), kept)


def test_the_head_computes_only_the_rows_that_are_wanted(executor):
    rows = []

    def linear(x, weight):
        if weight is executor._weights.head:
            rows.append(len(x))
        return BLAS.linear(x, weight)

    counting = NumpyExecutor(
        executor._config, executor._weights, context=300, file="", products=BLAS._replace(linear=linear)
    )
    counting.prefill([1] * (MAX_RUN + 1))
    assert rows == [0, 0]
    counting.forward([1] * (MAX_RUN + 1))
    assert rows[2:] == [0, 1]
    counting.forward_all([1] * (MAX_RUN + 1))
    assert rows[4:] == [MAX_RUN, 1]


def test_prefill_fills_the_cache_as_forward_does(executor):
    executor.prefill([3, 1, 4])
    after_prefill = executor.forward([1])
    executor.reset()
    np.testing.assert_allclose(executor.forward([3, 1, 4, 1]), after_prefill, rtol=1e-5, atol=1e-4)


def test_a_tied_head_is_the_embeddings_own_array(executor):
    assert executor._weights.head is executor._weights.embedding


@pytest.mark.parametrize("call", ["forward", "forward_all", "prefill"])
@pytest.mark.parametrize(
    "ids", [[], [VOCAB], [0, -1], [1.0], ["a"], [True], [2**70], [[1, 2]], np.empty(0, np.int64)], ids=repr
)
def test_ids_that_are_none_of_the_vocabulary_are_refused(executor, call, ids):
    executor.prefill([1, 2])
    with pytest.raises(ParameterError, match=rf"^ids: .* at least one token id, each an integer 0 … {VOCAB - 1}"):
        getattr(executor, call)(ids)
    assert executor.length == 2


def test_ids_may_come_as_an_array(executor):
    np.testing.assert_array_equal(executor.forward(np.array([7], np.uint16)), build().forward([7]))


def test_more_ids_than_the_context_has_room_for_are_refused_with_the_numbers():
    executor = build(context=10)
    executor.prefill([1] * 7)
    with pytest.raises(ContextOverflowError) as error:
        executor.forward([1] * 4)
    assert (error.value.needed, error.value.have) == (11, 10)
    assert executor.length == 7
    executor.forward([1] * 3)
    assert executor.length == 10


def test_truncating_to_more_than_there_is_is_refused(executor):
    executor.prefill([1, 2])
    with pytest.raises(ParameterError, match=r"length: 3 is not allowed"):
        executor.truncate(3)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_call_leaves_the_cache_as_it_was(executor, monkeypatch, interruption):
    executor.prefill([1, 2, 3])
    runs = []

    def interrupted_in_the_second_run(*arguments):
        runs.append(arguments)
        if len(runs) == 2:
            raise interruption
        return forward(*arguments)

    forward = families.forward
    monkeypatch.setattr(families, "forward", interrupted_in_the_second_run)
    with pytest.raises(interruption):
        executor.forward([1] * (2 * MAX_RUN))
    assert executor.length == 3


def test_logits_that_are_not_finite_are_an_error_and_not_an_answer(executor):
    hot = dataclasses.replace(executor._weights, norm=executor._weights.norm * np.float32(1e38))
    broken = NumpyExecutor(executor._config, hot, context=300, file="m.gguf")
    broken.prefill([1])
    with pytest.raises(FormatError, match=r"^m\.gguf: weights: they lead to logits that are not finite"):
        broken.forward([2])
    assert broken.length == 1


def test_progress_is_told_in_bytes_from_none_to_all():
    source, told = CountingSource(), []
    build(source, on_progress=lambda done, total: told.append((done, total)))
    total = sum(tensor.nbytes for tensor in run_without_waiting(read_gguf(source)).tensors.values())
    assert told[0] == (0, total)
    assert told[-1] == (total, total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert len(told) > MODEL.config.n_layers


def test_a_large_tensor_is_read_in_ranges_of_rows(monkeypatch, executor):
    monkeypatch.setattr(loading, "READ_BYTES", 1000)
    source = CountingSource()
    in_ranges = build(source)
    largest_row = 4 * MODEL.config.ffn
    assert max(source.reads[1:]) <= max(1000, largest_row)  # the first read is the header's
    np.testing.assert_array_equal(in_ranges.forward([1, 2, 3]), executor.forward([1, 2, 3]))


def test_building_needs_little_memory_beside_the_weights(tmp_path):
    config = dataclasses.replace(MODEL.config, hidden=64, n_heads=2, n_kv_heads=1, head_size=32, vocab_size=200_000)
    model = dataclasses.replace(MODEL, config=config)
    small = gguf_file(model, {})  # metadata only
    metadata = run_without_waiting(read_gguf(BytesSource(small))).metadata
    tensors = {}
    for name, shape in families.weight_shapes(config).items():
        quantised = shape[0] == 200_000
        n_bytes = np.prod(shape) // 32 * 34 if quantised else np.prod(shape) * 4
        tensors[gguf_name(name)] = ("Q8_0" if quantised else "F32", shape, bytes(n_bytes))
    write_gguf(tmp_path / "large.gguf", metadata, tensors)
    del tensors
    tracemalloc.start()
    executor = build(FileSource(tmp_path / "large.gguf"), context=16)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept > executor._weights.embedding.nbytes > 50_000_000
    assert peak - kept < 16 * 1024 * 1024


@pytest.mark.parametrize("context", [0, -1, MODEL.config.context_length + 1])
def test_a_context_the_model_was_not_made_for_is_refused(context):
    with pytest.raises(ParameterError, match=rf"^context: {context} is not allowed \(allowed: 1 … 2048"):
        build(context=context)


def test_a_model_that_would_not_fit_is_refused_with_the_numbers_before_its_weights_are_read():
    source = CountingSource()
    with pytest.raises(OutOfMemoryError) as error:
        build(source, context=2048, limit=20_000_000)
    assert len(source.reads) == 1  # the header
    message = str(error.value)
    assert message.startswith("m.gguf: it needs 0 MB for weights in float32, 1 MB for 2048 positions of context")
    assert "20 MB can be had" in message


def test_the_memory_counted_is_weights_full_cache_scores_and_room_to_work():
    weight_bytes = sum(array.nbytes for array in weights(MODEL).values())
    cache = 3 * 2 * 2 * 10 * 2048 * 4  # layers, keys and values, heads, values of a head, positions, bytes
    scores = 6 * MAX_RUN * 2048 * 4
    needed = weight_bytes + cache + scores + 32_000_000
    memory.check_fits(MODEL.config, 2048, MAX_RUN, needed, file="m.gguf")
    memory.check_fits(MODEL.config, 2048, MAX_RUN, None, file="m.gguf")
    with pytest.raises(OutOfMemoryError):
        memory.check_fits(MODEL.config, 2048, MAX_RUN, needed - 1, file="m.gguf")


def test_memory_that_cannot_be_had_after_all_is_said_so(monkeypatch):
    monkeypatch.setattr(numpy_executor.np, "empty", lambda *_: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(OutOfMemoryError, match=r"^m\.gguf: no memory for token_embd\.weight of shape \(101, 54\)"):
        build()


def test_the_browsers_heap_is_the_limit_in_the_browser(monkeypatch):
    monkeypatch.setattr(memory.sys, "platform", "emscripten")
    assert 3 * 1024**3 < memory_limit() < 4 * 1024**3


def test_a_platform_that_does_not_tell_its_memory_sets_no_limit(monkeypatch):
    monkeypatch.setattr(memory, "_MEMINFO", memory.Path("/no/such/file"))
    assert memory_limit() is None


def test_available_memory_is_read_where_the_kernel_tells_it(monkeypatch, tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       24684024 kB\nMemFree:          112233 kB\nMemAvailable:    1000000 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", meminfo)
    assert memory_limit() == 1_024_000_000


def test_products_are_einsum_in_the_browser_and_blas_elsewhere():
    assert products_for("emscripten") is EINSUM
    assert products_for("linux") is products_for("darwin") is BLAS
