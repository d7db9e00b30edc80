# Appended to the engine worker's source: a parrot takes the engine's place, which answers each message with the message
# itself, without any model. All else is the real worker.
#
# Commands in the message: "/flood TEXT" says it four characters at a time, as fast as it can; "/slow TEXT" one character
# at a time, and waits to be stopped; "/drip TEXT" at once, and then dots until it is stopped; "/fail TEXT" fails after
# having said it (nothing if there is none); "/wait" says nothing until it is stopped; "/think THOUGHT|TEXT" thinks before
# it says the text, and if there is none, thinks until it is stopped; "/call RAW|TEXT" says the text and makes a call that
# is not valid; "/python CODE" says what the tool of that name makes of the code; "/history" says
# what it was sent; "/count" says how many answers it has given. An answer that is continued
# goes on with " and on", and then does as before.

import asyncio
import json
from types import SimpleNamespace

from pyruntime.chat.tool_calls import InvalidToolCall
from pyruntime.errors import ContextOverflowError
from pyruntime.events import (
    CallInvalid,
    Delta,
    Finished,
    PrefillProgress,
    PromptReady,
    ReasoningDelta,
    Timings,
    Usage,
)
from pyruntime.turns import Turns


class Parrot:
    in_8_bits = ()

    def __init__(self, executor, context):
        self.executor_name, self.context = executor, context or 128
        self.model = SimpleNamespace(name="parrot", template=None, marks=SimpleNamespace(call=None))
        self.turns, self.messages, self.answers, self.stopped = Turns(), [], 0, False

    @classmethod
    async def load(cls, _files, *, executor, context, **_):
        return cls(executor, context)

    def check_can_chat(self):
        pass

    def stop_word(self):
        return None

    def stopwatch(self):
        return None

    def close(self):
        pass

    def cancel(self):
        self.stopped = True

    async def warm_up(self):
        pass

    async def prefill(self, _prompt):
        pass

    def prompt(self, messages, _tools, **_):
        self.messages = messages
        return [0]

    async def answer(self, _prompt, _params, *, continues, **_):
        self.stopped = False
        self.answers += 1
        said, thought = "", ""
        question = [message["content"] for message in self.messages if message["role"] == "user"][-1]
        size = len(question)
        yield PromptReady(size, 0)
        yield PrefillProgress(size, size)
        async for event in self.events(question, continues):
            said += event.text if isinstance(event, Delta) else ""
            thought += event.text if isinstance(event, ReasoningDelta) else ""
            yield event
        usage = Usage(size, 0, len(said) + len(thought))
        yield Finished("cancelled" if self.stopped else "stop", said, thought, usage, Timings(1.0, 100.0, 50.0))

    async def events(self, question, continues):
        command, _, rest = question.partition(" ") if question.startswith("/") else ("", "", question)
        if continues:
            yield Delta(" and on", 0)
            rest = ""
        async for event in getattr(self, command.replace("/", "do_") or "say")(rest):
            yield event
        if command == "/fail":
            raise ContextOverflowError(len(question), 8, advice="Shorten it")

    async def say(self, text, size=1_000_000, pause=0):
        for start in range(0, len(text), size):
            if self.stopped:
                break
            yield Delta(text[start : start + size], 0)
            await asyncio.sleep(pause)

    async def until_stopped(self, event=None, until=lambda: False):
        while not (self.stopped or until()):
            if event is not None:
                yield event
            await asyncio.sleep(0.01)

    do_fail = say

    def do_flood(self, text):
        return self.say(text, 4)

    async def do_slow(self, text):
        async for event in self.say(text, 1, 0.01):
            yield event
        async for event in self.until_stopped():
            yield event

    async def do_drip(self, text):
        async for event in self.say(text):
            yield event
        async for event in self.until_stopped(Delta(".", 0)):
            yield event

    def do_wait(self, _text):
        return self.until_stopped()

    async def do_think(self, text):
        thought, _, said = text.partition("|")
        for start in range(0, len(thought), 4):
            yield ReasoningDelta(thought[start : start + 4], 0)
            await asyncio.sleep(0)
        async for event in self.say(said) if said else self.until_stopped(ReasoningDelta(".", 0)):
            yield event

    async def do_call(self, text):
        raw, _, said = text.partition("|")
        async for event in self.say(said):
            yield event
        yield CallInvalid(InvalidToolCall("unknown tool 'f'", raw))

    async def do_python(self, code):
        running = asyncio.ensure_future(worker.tools()["python"].run({"code": code}))
        async for _ in self.until_stopped(until=running.done):
            pass  # the tool runs meanwhile
        running.cancel()
        if not self.stopped:
            yield Delta(await running, 0)

    def do_history(self, _text):
        return self.say("```json\n" + json.dumps(self.messages, ensure_ascii=False) + "\n```")

    def do_count(self, _text):
        return self.say(str(self.answers))


async def obtain_model(_manifest, **_):
    async def verify():
        pass

    manifest = SimpleNamespace(title="parrot", tokenizer_file=lambda: SimpleNamespace(sha256=""))
    return SimpleNamespace(manifest=manifest, store=None, verify=verify, model_files=lambda: None)


Engine = Parrot
