"""Run by CPython and by MicroPython: one visit to the page, without a page. Prints what both must agree on."""

import protocol
from ui import wording
from ui.markdown_text import BlockSplitter, take_math
from ui.options import read_options
from ui.session import Session


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
    messages = [(m.id, m.role, m.state, m.text, m.stats) for m in session.conversation.messages]
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
print(protocol.decode(protocol.encode(session.load())) == protocol.Load(*options[:4]))
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
    protocol.Finished(1, "length", "Hallo", 42, 10, 2, 30.25, None, 0),
):
    session.receive(protocol.decode(protocol.encode(message)))
    tell(session)
print(wording.summary(session.conversation.messages[1].stats))
session.send("again", 0)
print(plain(session.stop()))
session.receive(protocol.Finished(2, "cancelled", "", 1, 0, 0, None, None, 0))
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

splitter = BlockSplitter()
for piece in ("# T\n", "\n- a\n\n- b", "\n\n  c\n\ntext $x", "$ é\n\n```\n\n", "x\n```\n\nend"):
    print(plain((splitter.feed(piece), "|", splitter.tail)))
print(plain(take_math("$5 and $6; $x^2$ \\(é\\) `$z$` \\[d\\] $$e$$ ``` $ ```")))
