# Appended to the engine worker's source: a parrot takes the engine's place, which answers each message with the message
# itself, without any model. All else is the real worker.
#
# Commands in the message: "/flood TEXT" says it four characters at a time, as fast as it can; "/slow TEXT" one character
# at a time, and waits to be stopped; "/drip TEXT" at once, and then dots until it is stopped; "/fail TEXT" fails after
# having said it (nothing if there is none); "/wait" says nothing until it is stopped; "/think THOUGHT|TEXT" thinks before
# it says the text, and if there is none, thinks until it is stopped; "/call RAW|TEXT" says the text and makes a call that
# is not valid; "/use TOOL TEXT and TOOL TEXT then TOOL TEXT" calls two tools at once and then a third, and says what they
# gave; "/python CODE" says what the tool of that name makes of the code; "/told" says which tools it was offered and what it
# was told about thinking; "/history" says what it was sent; "/count" says how many answers it has given. An answer that is
# continued goes on with " and on", and then does as before.

import asyncio
import json
from types import SimpleNamespace

from pyruntime.chat.tool_calls import InvalidToolCall, ToolCall
from pyruntime.errors import ContextOverflowError
from pyruntime.events import (
    CallInvalid,
    CallReady,
    Delta,
    Finished,
    PrefillProgress,
    PromptReady,
    ReasoningDelta,
    Timings,
    Usage,
)
from pyruntime.tools import Tool
from pyruntime.turns import Turns

_CALLS = SimpleNamespace(single=False, arguments_as_text=False)
_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_times = iter(range(1000))


async def _echo(arguments):
    return arguments["text"]


async def _flaky(arguments):
    if next(_times) % 2 == 0:
        raise OSError("no network")
    return arguments["text"]


async def _forever(_arguments):
    await asyncio.Event().wait()


# Beside the worker's own: one that asks first, one that fails every other time, one that never ends.
TOOLS["risky"] = Tool("risky", "Says what it is told, and asks first.", _TEXT, _echo)
TOOLS["flaky"] = Tool("flaky", "Fails every other time.", _TEXT, _flaky, needs_approval=False)
TOOLS["forever"] = Tool("forever", "Never ends.", _TEXT, _forever, needs_approval=False)


class Parrot:
    in_8_bits, can_call, thinks_by_default = (), True, True

    def __init__(self, executor, context):
        self.executor_name, self.context = executor, context or 128
        self.model = SimpleNamespace(name="parrot", template=None, marks=SimpleNamespace(call=_CALLS))
        self.turns, self.messages, self.answers, self.stopped = Turns(), [], 0, False
        self.tools, self.told = None, {}

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

    def prompt(self, messages, tools, **told):
        self.messages, self.tools, self.told = messages, tools, told
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

    async def do_use(self, text):
        last = max(place for place, message in enumerate(self.messages) if message["role"] == "user")
        since = self.messages[last + 1 :]
        rounds = text.split(" then ")
        done = sum("tool_calls" in message for message in since)
        if done == len(rounds):
            results = [message["content"] for message in since if message["role"] == "tool"]
            async for event in self.say("They gave: " + ", ".join(results)):
                yield event
            return
        async for event in self.say(f"Round {done + 1}."):
            yield event
        for call in rounds[done].split(" and "):
            name, _, words = call.partition(" ")
            arguments = TOOLS[name].parameters["properties"]
            yield CallReady(ToolCall(name, dict.fromkeys(arguments, words), f"RAW {call}"))

    def do_told(self, _text):
        told = {name: value for name, value in self.told.items() if name != "continue_final_message"}
        return self.say(json.dumps([[tool["function"]["name"] for tool in self.tools or ()], told]))

    async def do_python(self, code):
        running = asyncio.ensure_future(TOOLS["python"].run({"code": code}))
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
