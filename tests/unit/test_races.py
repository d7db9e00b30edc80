"""Requests, stops, branches and closing in every order: no word after a stop, no two answers in each other."""

import asyncio
import random
from itertools import groupby

import pytest

from pyruntime.chat.tree import checked
from pyruntime.conversation import Options, State
from pyruntime.conversation.events import ApprovalNeeded, MessageAdded
from pyruntime.engine import Engine
from pyruntime.errors import BusyError, ClosedError, ParameterError
from pyruntime.events import Delta
from pyruntime.sampling import SamplingParams
from pyruntime.tools import Tool, ToolRegistry
from tests.conversation_lab import converse, open_model, run, shown_text
from tests.stepping_loop import SteppingLoop
from tests.tiny_model import CALL, IM_END, UNCALL, ScriptedExecutor

MODEL = open_model()
INTERLEAVINGS = 500


class Letters(ScriptedExecutor):
    """Answers the first prompt with a's, the second with b's, and so on; every third answer calls a tool."""

    def __init__(self):
        super().__init__([], context=4096)
        self._answers = 0

    def forward(self, ids):
        if self._is_cut or not self._script:
            letter = b"abcdefghijklmnopqrstuvwxyz"[self._answers % 26]
            self._answers += 1
            call = [CALL, *b'{"name": "echo"}', UNCALL] if self._answers % 3 == 0 else []
            self._scripts = [[*[letter] * 6, *call, IM_END]]
        return super().forward(ids)


def is_whole(tree):
    return checked(tree.nodes.values(), tree.chosen, tree.system, tree.title) == tree


async def echo(arguments):
    for _ in range(3):
        await asyncio.sleep(0)
    return "echo"


# Each letter is held back until the next token comes: at a stop there is something that must not be told any more.
PARAMS = SamplingParams(temperature=0, stop=tuple(f"{letter}." for letter in "abcdefghijklmnopqrstuvwxyz"))


def options(approval):
    return Options(
        params=PARAMS, tools=ToolRegistry([Tool("echo", "", {"type": "object"}, echo, needs_approval=approval)])
    )


class Race:
    """One interleaving: some people at one conversation, and what they saw."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.executor = Letters()
        engine = Engine(MODEL, self.executor)
        chance = self.random.random
        self.talk = converse(engine, options(approval=chance() < 0.5), queue=chance() < 0.5, look_ahead=chance() < 0.3)
        self.seen = []  # (number of the request, event)
        self.stopped = {}  # turn → how much had been seen when it was stopped
        self.computed = {}  # turn → how many tokens had been computed when it was stopped
        self.left = []  # what was seen of answers whose listeners went away
        self.closed_at = None  # how much had been seen then
        self.faults = []
        self.turns = []  # the turn under way at each thing seen
        self.loop = SteppingLoop(seed, self.check)

    def check(self):
        assert self.talk.engine.kv_tokens == tuple(self.executor.tokens)
        if self.talk._turn in self.computed and self.forwards() > self.computed[self.talk._turn] + 1:
            self.faults.append("computed after a stop")

    def forwards(self):
        return sum(call == "forward" for call, _ in self.executor.log)

    async def wait(self, most):
        for _ in range(self.random.randrange(most)):
            await asyncio.sleep(0)

    async def ask(self, number):
        """Some requests in a row; some are left in the middle."""
        for _ in range(self.random.randrange(1, 4)):
            await self.wait(12)
            leaves_at = self.random.choice([None, None, self.random.randrange(1, 12)])
            request, words = self.request(), ""
            try:
                is_refused = not self.talk.queue and not self.talk.engine.turns.is_free
                async for event in request:
                    if is_refused:
                        self.faults.append("not refused")
                    self.see(number, event)
                    words = self.words(words, event)
                    if leaves_at is not None and len(self.seen) % 12 == leaves_at:
                        self.left.append(words)
                        break
                    if isinstance(event, ApprovalNeeded):
                        # Some do not decide: only a stop ends that.
                        decide = self.random.choice([self.talk.approve, self.talk.deny, lambda call_id: None])
                        decide(event.call.id)
            except (BusyError, ClosedError, ParameterError):
                pass
            finally:
                await request.aclose()

    def request(self):
        talk, nodes = self.talk, list(self.talk.tree.nodes.values())
        users = [node.id for node in nodes if node.role == "user"]
        answers = [node.id for node in nodes if node.role == "assistant"]
        results = [node.id for node in nodes if node.role == "tool"]
        choices = [lambda: talk.send("question")]
        choices += [lambda: talk.edit(self.random.choice(users), "edited")] if users else []
        choices += [lambda: talk.regenerate(self.random.choice(answers))] if answers else []
        choices += [lambda: talk.continue_answer(self.random.choice(answers))] if answers else []
        choices += [lambda: talk.retry(self.random.choice(results))] if results else []
        return self.random.choice(choices)()

    def words(self, words, event):
        """What has been told of the answer being written."""
        if isinstance(event, MessageAdded):
            return ""
        return words + event.text if isinstance(event, Delta) else words

    def see(self, number, event):
        self.seen.append((number, event))
        self.turns.append(self.talk._turn)

    async def stop(self):
        for _ in range(self.random.randrange(1, 4)):
            await self.wait(60)
            turn = self.talk._turn
            self.talk.cancel()
            if turn is not None:
                self.stopped.setdefault(turn, len(self.seen))
                self.computed.setdefault(turn, self.forwards())

    async def browse(self):
        """Select branches and change the system prompt, between requests."""
        for number in range(4):
            await self.wait(40)
            try:
                nodes = list(self.talk.tree.nodes)
                tree = self.talk.tree.select(self.random.choice(nodes)) if nodes else self.talk.tree
                self.talk.change(tree.with_system(f"System {number}"))
            except BusyError:
                pass
            snapshot = self.talk.snapshot()
            assert is_whole(snapshot)

    async def close(self):
        await self.wait(150)
        if self.random.random() < 0.2:
            self.talk.close()
            self.closed_at = len(self.seen)

    def run(self):
        """Let all of it happen. Calls that nobody decides about are stopped when nothing else can go on."""
        tasks = self.loop.run(self.ask(0), self.ask(1), self.ask(2), self.stop(), self.browse(), self.close())
        for _ in range(20):
            self.talk.cancel()
            self.loop.run()
        return tasks


@pytest.mark.parametrize("part", range(10))
def test_in_every_interleaving_answers_stay_apart_and_nothing_comes_after_a_stop(part):
    for seed in range(part * INTERLEAVINGS // 10, (part + 1) * INTERLEAVINGS // 10):
        race = Race(seed)
        tasks = race.run()
        assert all(task.done() for task in tasks), seed
        assert [task.exception() for task in tasks] == [None] * len(tasks), seed
        assert (race.loop.problems, race.faults) == ([], []), seed
        assert race.talk.state == State.IDLE, seed
        assert race.talk.engine.turns.is_free, seed

        for place, (_, event) in enumerate(race.seen):
            turn = race.turns[place]
            if isinstance(event, Delta) and turn in race.stopped:
                assert place < race.stopped[turn], seed
            if isinstance(event, Delta) and race.closed_at is not None:
                assert place < race.closed_at, seed
        # The words of one request have no other's between them.
        words = [turn for (_, event), turn in zip(race.seen, race.turns, strict=True) if isinstance(event, Delta)]
        assert len([turn for turn, _ in groupby(words)]) == len(set(words)), seed

        tree = race.talk.tree
        assert is_whole(tree), seed
        for words in race.left:
            assert any(words in node.text for node in tree.nodes.values()), (seed, words)
        for node in tree.nodes.values():
            if node.role == "assistant":
                base = len(tree.node(node.continues).text) if node.continues else 0
                assert len(set(node.text[base:])) <= 1, (seed, node.text)

        race.talk.options = options(approval=False)
        if race.closed_at is None:
            assert shown_text(run(race.talk.send("Still there?")))
        else:
            with pytest.raises(ClosedError):
                run(race.talk.send("Still there?"))


def test_the_stepping_loop_takes_the_same_way_again_for_the_same_seed_and_others_for_others():
    def way(seed):
        taken = []

        async def walk(name):
            for step in range(4):
                taken.append((name, step))
                await asyncio.sleep(0)

        SteppingLoop(seed).run(walk("a"), walk("b"), walk("c"))
        return taken

    assert way(1) == way(1)
    assert len({tuple(way(seed)) for seed in range(20)}) > 10
