"""A long conversation with somebody who does anything at any moment: edits, new attempts, continuations, stops.

Runs on CPython and, on the WebAssembly kernels, in Pyodide; both take their turns with the same code.
"""

from __future__ import annotations

import gc
import random
import sys
from collections import Counter

import numpy as np

from pyruntime.chat.tree import Tree, checked
from pyruntime.conversation import Options, State
from pyruntime.conversation.states import TRANSITIONS, StateChanged
from pyruntime.engine import Engine
from pyruntime.formats.source import BytesSource
from pyruntime.sampling import SamplingParams
from tests.conversation_lab import converse

CONTEXT = 256
BASELINE = 200  # turns: by then everything has been imported and used once
FOLLOWING = 6  # tokens that are drawn behind a checkpoint
_PROBE = 65


def is_whole(tree):
    return checked(tree.nodes.values(), tree.chosen, tree.system, tree.title) == tree


class Soak:
    """The conversation, the engine it is on, and one that never held anything else.

    Args:
        seed: of all that is done.
        engine: of the conversation.
        fresh: the same model.
        tolerance: by how much their next logits may differ, as a share of the largest.

    Attributes:
        done: how often what has happened.
        transitions: how often each transition was told: (State, State) → times.
        blocks: pieces of memory in use when the conversation is forgotten, one number for each measurement.
    """

    def __init__(self, seed, engine, fresh, *, tolerance):
        self.random, self.tolerance = random.Random(seed), tolerance
        self.engine, self.fresh = engine, fresh
        self.talk = converse(engine, options=self._options())
        self.done = {"cancelled": 0, "left": 0, "left out": 0}
        self.transitions, self.blocks = Counter(), []

    @classmethod
    async def load(cls, model, seed, executor, *, tolerance, threads=None, context=CONTEXT):
        """A soak of a model, given as the bytes of its file."""
        engine, fresh = [
            await Engine.load(BytesSource(model, "tiny.gguf"), executor=executor, context=context, threads=threads)
            for _ in range(2)
        ]
        return cls(seed, engine, fresh, tolerance=tolerance)

    async def run(self, turns, checkpoints, measured_at=()):
        """Take so many turns; the cache is compared at the checkpoints, and memory counted where it is to be measured."""
        for number in range(turns):
            await self._turn()
            assert len(self.engine.kv_tokens) == self.engine._executor.length <= self.engine.context
            if number in checkpoints:
                self._compare_with_a_fresh_prefill()
            if number in measured_at:
                self._count_blocks()
        assert is_whole(self.talk.tree)

    def _options(self):
        seed, length = self.random.randrange(1000), self.random.randrange(1, 9)
        return Options(params=SamplingParams(temperature=1.0, seed=seed, max_tokens=length), reserve=16)

    def _request(self):
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

    async def _turn(self):
        self.talk.options = self._options()
        stops_at = self.random.choice([None, None, self.random.randrange(1, 14)])
        leaves = self.random.random() < 0.3
        request, events = self._request(), []
        async for event in request:
            events.append(event)
            if len(events) == stops_at and leaves:
                self.done["left"] += 1
                break
            if len(events) == stops_at:
                self.talk.cancel()
        await request.aclose()
        self._take_note(events, is_over=stops_at is None or not leaves or len(events) < stops_at)
        assert self.talk.state == State.IDLE

    def _take_note(self, events, *, is_over):
        state = State.IDLE
        for change in events:
            if isinstance(change, StateChanged):
                assert change.before == state, "a transition was not told"
                assert change.now in TRANSITIONS[state], f"{state} → {change.now}"
                state = change.now
                self.transitions[change.before, change.now] += 1
                self.done["cancelled"] += state == State.CANCELLED
        assert state == State.IDLE or not is_over
        self.done["left out"] += any(getattr(event, "left_out", ()) for event in events)

    def _compare_with_a_fresh_prefill(self):
        """The next logits, and the likeliest tokens one after another, as the cache gives them and as a fresh one does."""
        kv = list(self.engine.kv_tokens)
        room = self.engine.context - FOLLOWING - 1
        if len(kv) > room:
            kv = kv[:room]
            self.engine._kv._cut(len(kv))
        expected = self.fresh.logits([*kv, _PROBE])[-1]
        found = self.engine._executor.forward([_PROBE])
        most = self.tolerance * np.abs(expected).max()
        assert (np.abs(found - expected) <= most + self.tolerance * np.abs(expected)).all()
        for _ in range(FOLLOWING):
            token = int(expected.argmax())
            assert found.argmax() == token
            expected, found = (engine._executor.forward([token]) for engine in (self.fresh, self.engine))
        self.engine._executor.truncate(len(kv))

    def _count_blocks(self):
        assert is_whole(self.talk.tree)
        self.talk.change(Tree())
        gc.collect()
        self.blocks.append(sys.getallocatedblocks())

    def check_all_happened(self):
        """Every way of ending was taken often, and memory stayed flat."""
        assert min(self.done.values()) > 50, self.done
        ends = [(State.PREFILL, State.CANCELLED), (State.DECODE, State.CANCELLED), (State.DECODE, State.COMPLETED)]
        assert min(self.transitions[end] for end in ends) > 20, self.transitions
        # The tokenizer remembers pieces of text, up to a limit. A turn that were kept would take a hundred pieces of memory.
        assert self.blocks[-1] - self.blocks[0] < 5 * sum(self.transitions[end] for end in ends), "memory is lost"
