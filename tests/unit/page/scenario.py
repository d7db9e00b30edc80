"""Run by CPython and by MicroPython: one visit to the page, without a page. Prints what both must agree on."""

import protocol
from ui import wording
from ui.calls import in_state
from ui.characters import showable, well_formed
from ui.markdown_text import BlockSplitter, take_math
from ui.options import read_options
from ui.session import Session
from ui.settings import Settings


def plain(value):
    """The value as text that does not depend on the order of dicts."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {plain(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(plain(item) for item in value) + ")"
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def resolve(address):
    if "::" in address:
        raise ValueError(address)
    return address if ":" in address else "http://here/" + address


def tell(session):
    notice = session.notice and tuple(session.notice)
    messages = []
    for m in session.conversation.messages:
        calls = [(c.id, c.name, c.arguments, c.problem, c.raw, c.state) for c in m.calls]
        named = (m.id, m.request, m.branches, m.role, m.state)
        messages.append((named, m.text, m.reasoning, m.thinking, m.thought_ms, calls, m.stats))
    print(session.state, session.status, session.detail, plain(session.fraction), plain(notice), plain(messages))


for parameters in (
    {},
    {"temperature": "0.5", "seed": str(2**64 - 1), "max-tokens": "9", "context": "2048", "executor": "numpy"},
    {"temperature": "hot", "seed": "-1", "max-tokens": "0", "context": "x", "executor": "y" * 200},
    {"manifest": "https://elsewhere/x.json"},
    {"manifest": "::"},
):
    print(plain(read_options(parameters, resolve, "http://here")))

options, problems = read_options({"temperature": "0"}, resolve, "http://here")
session = Session(options, problems)
tell(session)
MESSAGES = (
    protocol.Progress("fetch", "the model", 42_000_000, 5_000_000_000, 1_800_000_000_000.5),
    protocol.Progress("fetch", "the model", 82_000_000, 5_000_000_000, 1_800_000_001_000.5),
    protocol.Progress("open", "SmolLM2", 5, 10, 1_800_000_002_000.0),
    protocol.Remark("the stored one", 0),
    protocol.Ready("SmolLM2", "numpy", 4096, 0),
)
print(protocol.decode(protocol.encode(session.load())) == protocol.Load(*options[:5], None))
for message in MESSAGES:
    session.receive(protocol.decode(protocol.encode(message)))
    tell(session)
request = session.send("Grüße 😀", 1_800_000_003_000.0)
print(plain(protocol.to_wire(request)))
for message in (
    protocol.PromptReady(1, 42, 10, 0),
    protocol.Prefill(1, 32, 32, 0),
    protocol.Delta(1, "Hal", 1_800_000_003_250.0),
    protocol.Delta(9, "late", 0),
    protocol.Delta(1, "lo", 0),
    protocol.Finished(1, "length", "Hallo", "", 42, 10, 2, 0, 30.25, None, 0),
):
    session.receive(protocol.decode(protocol.encode(message)))
    tell(session)
print(wording.summary(session.conversation.messages[1].stats))
print(plain(protocol.to_wire(session.send("and now?", 1_800_000_004_000.0))))
for message in (
    protocol.ReasoningDelta(2, "Hm 🤔", 1_800_000_004_100.0),
    protocol.ReasoningDelta(2, "…", 1_800_000_004_200.0),
    protocol.ToolCall(2, None, None, "unknown tool 'f'", '{"name": "f"}', 1_800_000_005_600.0),
    protocol.Delta(2, "Gut", 1_800_000_005_700.0),
    protocol.ReasoningDelta(2, " Noch", 1_800_000_006_000.0),
    protocol.Finished(2, "length", "Gut", "Hm 🤔… Noch", 42, 10, 2, 0, 30.25, None, 1_800_000_006_500.5),
):
    session.receive(protocol.decode(protocol.encode(message)))
    tell(session)
    answer = session.conversation.messages[-1]
    print(
        wording.thinking(answer.thinking, answer.thought_ms),
        [wording.invalid_call(call.problem) for call in answer.calls],
    )
ENTRY = {"reasoning": "", "calls": [], "call_id": None, "stats": None}
entries = [
    dict(id="m0", role="user", text="é", state="done", branches=["m0", "n0"], **ENTRY),
    dict(id="m1", role="assistant", text="ja", state="interrupted", branches=["m1"], **ENTRY),
]
session.new_chat()
session.receive(protocol.decode(protocol.encode(protocol.Shown("c1", 0, entries, 0))))
tell(session)
question, answer = session.conversation.messages
print(plain(protocol.to_wire(session.select(question, 1))), session.select(question, -1))
print(plain(protocol.to_wire(session.go_on(answer, 0))), session.regenerate(answer, 0), session.send("x", 0))
tell(session)
session.receive(protocol.Shown("c1", 0, entries, 0))
session.receive(protocol.Finished(3, "cancelled", "", "", 1, 0, 0, 0, None, None, 0))
tell(session)
print(plain(protocol.to_wire(session.edit(question, "ö", 0))), plain(protocol.to_wire(session.new_chat())))
session.receive(protocol.Finished(4, "cancelled", "", "", 1, 0, 0, 0, None, None, 0))
CALLS = [{"id": "c1", "name": "clock", "arguments": "{}", "problem": None, "raw": "{}"}]
TOLD = [
    dict(id="n0", role="user", text="?", state="done", branches=["n0"], **ENTRY),
    dict(ENTRY, id="n1", role="assistant", text="", state="done", branches=["n1"], calls=CALLS),
    dict(ENTRY, id="n2", role="tool", text="noon", state="done", branches=["n2"], call_id="c1"),
]
TOOL = {"name": "clock", "description": "Tells the time.", "needs_approval": True}
session.receive(protocol.decode(protocol.encode(protocol.Abilities([TOOL], True, False, 0))))
session.settings.set_tool("clock", True)
session.settings.set_thinking(True)
print(plain(protocol.to_wire(session.set_system("Brief."))), session.set_system("Brief."), wording.tool(TOOL))
print(plain(protocol.to_wire(session.send("?", 0))), plain(Settings(session.settings.text).is_on("clock")))
for message in (
    protocol.Shown("c2", 0, TOLD[:1], 0),
    protocol.ToolCall(5, "clock", "{}", None, "{}", 0),
    protocol.Shown("c2", 1, TOLD[1:2], 0),
    protocol.Step(5, "tools", 0),
    protocol.ApprovalNeeded(5, "c1", 0),
    protocol.ToolStarted(5, "c1", 0),
    protocol.Shown("c2", 2, TOLD[2:], 0),
    protocol.ToolEnded(5, "c1", "done", 0),
    protocol.Step(5, "answer", 0),
    protocol.Delta(5, "Noon.", 0),
    protocol.ToolRoundsExhausted(5, 8, 0),
):
    session.receive(protocol.decode(protocol.encode(message)))
    tell(session)
    for call in in_state(session.conversation.messages, "waiting"):
        print(plain(protocol.to_wire(session.decide(call, allowed=True))), session.decide(call, allowed=False))
session.receive(protocol.Finished(5, "stop", "Noon.", "", 1, 0, 0, 0, None, None, 0))
print(plain(protocol.to_wire(session.run_again(session.conversation.messages[2], 0))))
session.receive(protocol.Failed(6, "ParameterError", "no such tool", 0))
session.new_chat()
print(wording.left_out(1), wording.left_out(2), wording.branch(1, 2))
print(plain(protocol.to_wire(session.send("again", 0))))
print(plain(session.stop()))
session.receive(protocol.Finished(7, "cancelled", "", "", 1, 0, 0, 0, None, None, 0))
print(session.take_draft())
session.engine_lost("RuntimeError", "gone")
tell(session)

for wire in (
    [],
    {"type": "Nope"},
    {"type": "Cancel", "id": 1.5},
    {"type": "Cancel", "id": True},
    {"type": "Cancel", "x": 1},
):
    try:
        protocol.from_wire(wire)
    except protocol.ProtocolError as error:
        print(error)
try:
    protocol.decode("{")
except protocol.ProtocolError as error:
    print(error)

# As CPython writes it, whichever interpreter reads it.
print(protocol.decode('{"type": "Delta", "id": 1, "text": "😀 é\u2028", "at": 0}').text)

halves = "".join([chr(code) for code in (0x61, 0xD83D, 0x1F600, 0xDE00, 0x4E00)])
print(well_formed(halves), well_formed("é 你好"), well_formed(""), showable("a\0b"))

splitter = BlockSplitter()
for piece in ("# T\n", "\n- a\n\n- b", "\n\n  c\n\ntext $x", "$ é\n\n```\n\n", "x\n```\n\nend"):
    print(plain((splitter.feed(piece), "|", splitter.tail)))
print(plain(take_math("$5 and $6; $x^2$ \\(é\\) `$z$` \\[d\\] $$e$$ ``` $ ```")))
