"""A thousand turns with edits, new attempts, continuations and stops: the cache stays right, and memory flat."""

import asyncio
import gc
import random
import sys

import numpy as np

from pyruntime.chat.tree import Tree, checked
from pyruntime.conversation import Options, State
from pyruntime.engine import Engine
from pyruntime.formats.source import BytesSource
from pyruntime.sampling import SamplingParams
from tests.conversation_lab import converse, states
from tests.tiny_model import tiny_gguf
from tooling import kernels

TURNS, CHECKPOINTS, CONTEXT = 1000, 50, 256
BASELINE = 200  # by then everything has been imported and used once


def is_whole(tree):
    return checked(tree.nodes.values(), tree.chosen, tree.system, tree.title) == tree


def load(executor, threads=None):
    return asyncio.run(
        Engine.load(BytesSource(tiny_gguf(), "tiny.gguf"), executor=executor, context=CONTEXT, threads=threads)
    )


class Soak:
    """The conversation, and somebody who does anything at any moment."""

    def __init__(self, seed, *how):
        self.random = random.Random(seed)
        self.engine, self.fresh = load(*how), load(*how)
        self.talk = converse(self.engine, options=self.options())
        self.done = {"cancelled": 0, "left": 0, "left out": 0}

    def options(self):
        seed, length = self.random.randrange(1000), self.random.randrange(1, 9)
        return Options(params=SamplingParams(temperature=1.0, seed=seed, max_tokens=length), reserve=16)

    def request(self):
        talk, shown = self.talk, self.talk.tree.path[-8:]
        answers = [node.id for node in shown if node.role == "assistant"]
        whole = [node.id for node in shown if node.role == "assistant" and (node.text or node.reasoning)]
        users = [node.id for node in shown if node.role == "user"]
        text = "".join(self.random.choices("abc \n🙂é", k=self.random.randrange(1, 20)))
        kind = self.random.random()
        if kind < 0.1 and users:
            return talk.edit(self.random.choice(users), text)
        if kind < 0.25 and answers:
            return talk.regenerate(answers[-1])
        if kind < 0.35 and whole:
            return talk.continue_answer(whole[-1])
        return talk.send(text)

    async def turn(self):
        self.talk.options = self.options()
        stops_at = self.random.choice([None, None, self.random.randrange(1, 14)])
        leaves = self.random.random() < 0.3
        request, events = self.request(), []
        async for event in request:
            events.append(event)
            if len(events) == stops_at and leaves:
                self.done["left"] += 1
                break
            if len(events) == stops_at:
                self.talk.cancel()
        await request.aclose()
        went = states(events)
        self.done["cancelled"] += "cancelled" in went
        self.done["left out"] += any(getattr(event, "left_out", ()) for event in events)
        assert leaves or went.endswith("idle")
        assert self.talk.state == State.IDLE

    def compare_with_a_fresh_prefill(self):
        """The next logits as the cache gives them, and as a cache gives them that never held anything else."""
        kv, probe = list(self.engine.kv_tokens), 65
        if len(kv) + 1 >= CONTEXT:
            kv = kv[: CONTEXT - 2]
            self.engine._kv._cut(len(kv))
        expected = self.fresh.logits([*kv, probe])[-1]
        found = self.engine._executor.forward([probe])
        self.engine._executor.truncate(len(kv))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
        assert found.argmax() == expected.argmax()

    def blocks_without_the_tree(self):
        """Pieces of memory in use when the conversation is forgotten, which may grow."""
        self.talk.change(Tree())
        gc.collect()
        return sys.getallocatedblocks()


def run(soak, turns, checkpoints, measured_at=()):
    """Take the turns; (pieces of memory, bytes of the cache) at the places to measure."""
    found = []

    async def all_turns():
        for number in range(turns):
            await soak.turn()
            assert len(soak.engine.kv_tokens) == soak.engine._executor.length <= CONTEXT
            if number in checkpoints:
                soak.compare_with_a_fresh_prefill()
            if number in measured_at:
                assert is_whole(soak.talk.tree)
                found.append((soak.blocks_without_the_tree(), soak.engine._executor._cache.nbytes))

    asyncio.run(all_turns())
    return found


def test_a_thousand_turns_leave_the_cache_right_and_memory_flat():
    soak = Soak(7, "numpy")
    checkpoints = {BASELINE // 2, *soak.random.sample(range(TURNS), CHECKPOINTS)}
    (before, cache_before), (after, cache_after) = run(soak, TURNS, checkpoints, (BASELINE, TURNS - 1))
    # The tokenizer remembers pieces of text, up to a limit. A turn that were kept would take a hundred pieces of memory.
    assert after - before < 5 * TURNS, "memory is lost"
    assert cache_after == cache_before
    assert min(soak.done.values()) > 50, soak.done


def test_the_kernels_cache_stays_right_too():
    # Theirs is exact: a position's keys and values do not depend on the others of its chunk.
    kernels.build_native()
    soak = Soak(11, "native", 1)
    run(soak, 200, set(range(0, 200, 8)))
    assert is_whole(soak.talk.tree)
