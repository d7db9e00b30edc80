"""A thousand turns with edits, new attempts, continuations and stops: the cache stays right, and memory flat."""

import asyncio

from tests.soak import BASELINE, CONTEXT, Soak
from tests.tiny_model import tiny_gguf
from tooling import kernels

TURNS, CHECKPOINTS = 1000, 50


def load(seed, executor, context=CONTEXT, **how):
    model = tiny_gguf(llama__context_length=context)
    return asyncio.run(Soak.load(model, seed, executor, context=context, **how))


def soaked(seed, executor, **how):
    """A soak after its thousand turns."""
    soak = load(seed, executor, **how)
    checkpoints = {BASELINE // 2, *soak.random.sample(range(TURNS), CHECKPOINTS)}
    asyncio.run(soak.run(TURNS, checkpoints, (BASELINE, TURNS - 1)))
    soak.check_all_happened()
    return soak


def test_a_thousand_turns_leave_the_cache_right_and_memory_flat():
    soak = soaked(7, "numpy", tolerance=1e-4)
    assert soak.engine._executor._cache.nbytes == soak.fresh._executor._cache.nbytes


def test_a_thousand_turns_leave_the_kernels_cache_as_a_fresh_one_bit_for_bit():
    """Up to 256 positions, that is: a position's keys and values do not depend on the others of its chunk."""
    kernels.build_native()
    soaked(11, "native", tolerance=0, threads=2)


def test_beyond_256_positions_the_kernels_cache_differs_from_a_fresh_one_by_the_order_of_sums_only():
    """There a token that is computed alone adds up the spans of attention in another order than a chunk does."""
    kernels.build_native()
    soak = load(13, "native", tolerance=1e-3, threads=1, context=640)
    asyncio.run(soak.run(200, set(range(0, 200, 8))))
    assert len(soak.engine.kv_tokens) > 256
