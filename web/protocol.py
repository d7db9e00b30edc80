"""The messages between the page and the engine worker: their names, their fields, and how each field is checked.

Both sides import this module, the page on MicroPython 1.27 and the worker on Pyodide, so it keeps to the subset both
run. A message is a namedtuple in Python, a plain dict after `to_wire`, and one JSON text (`encode`) when it crosses:
MicroPython passes integers to and from JavaScript as 32 bits, and file sizes and times are wider.

A request and all that is said about its answer carry the `id` the page gave it; id 0 is the model itself. Messages of the
conversation have ids of their own, texts, which the worker gives and which outlive the page. `at` is when the worker posted
the message, in milliseconds since the epoch. Nothing here knows workers, pages or engines.
"""

import json
import sys
from collections import namedtuple


class ProtocolError(ValueError):
    """A message that this protocol does not have, or with a field that is missing, unknown or of the wrong kind."""


def _text(where, value):
    if not isinstance(value, str):
        raise _refusal(where, value, "a text")
    return value


def _count(where, value):
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _refusal(where, value, "an integer >= 0")
    return value


def _flag(where, value):
    if not isinstance(value, bool):
        raise _refusal(where, value, "true or false")
    return value


def _number(where, value):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _refusal(where, value, "a number")
    if not -1e300 < value < 1e300:
        raise _refusal(where, value, "a finite number")
    return float(value)


def _optional(kind):
    return lambda where, value: None if value is None else kind(where, value)


def _one_of(*names):
    def kind(where, value):
        if value not in names:
            raise _refusal(where, value, ", ".join(names))
        return value

    return kind


def _list(kind):
    """A list whose every entry is of a kind."""

    def check(where, value):
        if not isinstance(value, (list, tuple)):
            raise _refusal(where, value, "a list")
        return [kind(f"{where}[{index}]", item) for index, item in enumerate(value)]

    return check


def _record(*fields):
    """A dict with exactly these fields, each of its kind."""
    names = {name for name, _ in fields}

    def check(where, value):
        if not isinstance(value, dict) or set(value) != names:
            raise _refusal(where, value, "a dict of " + ", ".join([name for name, _ in fields]))
        return {name: kind(f"{where}.{name}", value[name]) for name, kind in fields}

    return check


def _sampling(where, value):
    """The sampling parameters that differ from the engine's defaults: name → number."""
    if not isinstance(value, dict):
        raise _refusal(where, value, "names and numbers")
    for name in value:
        _number(f"{where}.{_text(where, name)}", value[name])
    return value


def _refusal(where, value, allowed):
    shown = repr(value)
    if len(shown) > 80:
        shown = shown[:79] + "…"
    return ProtocolError(f"{where}: {shown} is not allowed (allowed: {allowed})")


_CLASSES = {}  # the message's name → (its class, its fields with their kinds and what refusals call them)
_NAMES = {}  # the message's class → its name


def _message(name, *fields):
    made = namedtuple(name, tuple(field for field, _ in fields))
    _CLASSES[name] = (made, tuple((field, kind, f"{name}.{field}") for field, kind in fields))
    _NAMES[made] = name
    return made


# ---------------------------------------------------------------------------------------- from the page to the worker
# `manifest` and `page` are absolute addresses; the worker, which runs from a blob, does not know the page's.
Load = _message(
    "Load",
    ("manifest", _text),
    ("page", _text),
    ("executor", _text),
    ("context", _optional(_count)),
    ("threads", _optional(_count)),
    ("conversation", _optional(_text)),  # the one to show; None: the one that was written last
)
# What a request is run with: `tools` are the names of those the model may ask for, `thinking` whether it is to think (None:
# as its template has it).
_SETTINGS = _record(("sampling", _sampling), ("tools", _list(_text)), ("thinking", _optional(_flag)))
# Requests: ask behind the last message, put a question in other words, answer again, go on with an answer, run the call of a
# result again.
Send = _message("Send", ("id", _count), ("text", _text), ("settings", _SETTINGS))
Edit = _message("Edit", ("id", _count), ("message", _text), ("text", _text), ("settings", _SETTINGS))
Regenerate = _message("Regenerate", ("id", _count), ("message", _text), ("settings", _SETTINGS))
Continue = _message("Continue", ("id", _count), ("message", _text), ("settings", _SETTINGS))
Retry = _message("Retry", ("id", _count), ("message", _text), ("settings", _SETTINGS))
Cancel = _message("Cancel", ("id", _count))
# What the user says to a call of a request that waits for that.
Approve = _message("Approve", ("id", _count), ("call", _text))
Deny = _message("Deny", ("id", _count), ("call", _text))
# Another system prompt for the conversation; an empty one leaves it to the model's template.
SetSystem = _message("SetSystem", ("text", _text))
# Show the branch that a message is on; begin another conversation.
Select = _message("Select", ("message", _text))
NewChat = _message("NewChat")

# What came of the code of a RunCode; the names of `pyruntime.tools.python.Outcome`.
CodeRan = _message(
    "CodeRan",
    ("run", _count),
    ("ended", _one_of("done", "error", "memory", "time", "broken")),
    ("output", _text),
    ("text", _text),
)

# ---------------------------------------------------------------------------------------- from the worker to the page
# One step of getting the model `name`: `done` of `total` bytes of the stage.
Progress = _message(
    "Progress",
    ("stage", _one_of("fetch", "open")),
    ("name", _text),
    ("done", _count),
    ("total", _count),
    ("at", _number),
)
# Another tab stands in the way of getting the model: why, and what helps. All goes on by itself; what follows says so.
Waiting = _message("Waiting", ("stage", _one_of("fetch", "open")), ("text", _text), ("at", _number))
# Something the user should know, though all goes on.
Remark = _message("Remark", ("text", _text), ("at", _number))
# What the model can be told beside the conversation: the tools there are, whether its template can call any, and whether it
# thinks when it is not told (None: its template knows no such switch).
_TOOL = _record(("name", _text), ("description", _text), ("needs_approval", _flag))
Abilities = _message(
    "Abilities", ("tools", _list(_TOOL)), ("can_call", _flag), ("thinks", _optional(_flag)), ("at", _number)
)
# The model takes messages now; `context` is in tokens.
Ready = _message("Ready", ("model", _text), ("executor", _text), ("context", _count), ("at", _number))
# The messages shown of a conversation: the first `first` stay as they are, these follow, and no others. `branches` are the
# ids of all messages at the same place, oldest first. `stats` are those of an answer that ended by itself or was stopped.
# `call_id` is that of the call in the answer above that a tool's result is of.
_CALL = _record(
    ("id", _text),
    ("name", _optional(_text)),
    ("arguments", _optional(_text)),
    ("problem", _optional(_text)),
    ("raw", _text),
)
_STATE = _one_of("done", "cancelled", "interrupted", "error")
_STATS = _record(
    ("prompt_tokens", _count),
    ("cached_tokens", _count),
    ("new_tokens", _count),
    ("left_out", _count),
    ("ttft_ms", _optional(_number)),
    ("prefill_tps", _optional(_number)),
    ("decode_tps", _optional(_number)),
    ("stop_reason", _text),
)
_SHOWN = _record(
    ("id", _text),
    ("role", _one_of("user", "assistant", "tool")),
    ("text", _text),
    ("reasoning", _text),
    ("calls", _list(_CALL)),
    ("call_id", _optional(_text)),
    ("state", _STATE),
    ("stats", _optional(_STATS)),
    ("branches", _list(_text)),
)
Shown = _message("Shown", ("conversation", _text), ("first", _count), ("messages", _list(_SHOWN)), ("at", _number))
# The conversation's system prompt; empty where that is left to the model's template.
System = _message("System", ("text", _text), ("at", _number))
# What the model is given: the conversation without its `left_out` first messages, for which there is no room.
Fitted = _message("Fitted", ("id", _count), ("left_out", _count), ("at", _number))
PromptReady = _message(
    "PromptReady", ("id", _count), ("prompt_tokens", _count), ("cached_tokens", _count), ("at", _number)
)
# `done` of `total` prompt tokens have been computed.
Prefill = _message("Prefill", ("id", _count), ("done", _count), ("total", _count), ("at", _number))
# The text that one more token made visible: of the answer, and of the thinking that comes before it.
Delta = _message("Delta", ("id", _count), ("text", _text), ("at", _number))
ReasoningDelta = _message("ReasoningDelta", ("id", _count), ("text", _text), ("at", _number))
# The model asks for a tool. A valid call has a name and arguments (JSON text); of any other only the problem is sure.
# `raw` is what the model wrote.
ToolCall = _message(
    "ToolCall",
    ("id", _count),
    ("name", _optional(_text)),
    ("arguments", _optional(_text)),
    ("problem", _optional(_text)),
    ("raw", _text),
    ("at", _number),
)
# A request with calls goes on: they are run now, or the model has their results and answers again, in another message.
Step = _message("Step", ("id", _count), ("to", _one_of("tools", "answer")), ("at", _number))
# One call, by its id: it waits for `Approve` or `Deny`; it is being run; it has its result ("cancelled": it was denied).
ApprovalNeeded = _message("ApprovalNeeded", ("id", _count), ("call", _text), ("at", _number))
ToolStarted = _message("ToolStarted", ("id", _count), ("call", _text), ("at", _number))
ToolEnded = _message(
    "ToolEnded",
    ("id", _count),
    ("call", _text),
    ("state", _STATE),
    ("at", _number),
)
# The model asked for tools once more than one request may; these calls are not run.
ToolRoundsExhausted = _message("ToolRoundsExhausted", ("id", _count), ("rounds", _count), ("at", _number))
# The end of a request, and of its last answer; `text` is that whole answer, `reasoning` its whole thinking, rates are in tokens
# per second.
Finished = _message(
    "Finished",
    ("id", _count),
    ("reason", _one_of("stop", "length", "cancelled")),
    ("text", _text),
    ("reasoning", _text),
    ("prompt_tokens", _count),
    ("cached_tokens", _count),
    ("new_tokens", _count),
    ("left_out", _count),
    ("prefill_tps", _optional(_number)),
    ("decode_tps", _optional(_number)),
    ("at", _number),
)
# Run Python that a model wrote, in the page's sandbox, within the limits of `pyruntime.tools.python`; end it.
RunCode = _message(
    "RunCode",
    ("run", _count),
    ("code", _text),
    ("seconds", _count),
    ("megabytes", _count),
    ("characters", _count),
)
StopCode = _message("StopCode", ("run", _count))
# What failed, in the error's own words; `error` is its class.
Failed = _message("Failed", ("id", _count), ("error", _text), ("text", _text), ("at", _number))


# Of the two escapes that CPython writes for an emoji, MicroPython reads two halves. So characters cross as they are,
# which is how MicroPython writes them anyway.
_as_json = json.dumps if sys.implementation.name == "micropython" else json.JSONEncoder(ensure_ascii=False).encode


def to_wire(message):
    """The message as a plain dict with its "type"; raises ProtocolError for anything that is not a valid message."""
    name = _NAMES.get(type(message))
    if name is None:
        raise _refusal("message", message, "a message of the protocol")
    wire = {"type": name}
    for field, kind, where in _CLASSES[name][1]:
        wire[field] = kind(where, getattr(message, field))
    return wire


def from_wire(wire):
    """The message a plain dict stands for; raises ProtocolError naming the field at fault."""
    if not isinstance(wire, dict):
        raise _refusal("message", wire, 'a dict with a "type"')
    name = wire.get("type")
    if not isinstance(name, str) or name not in _CLASSES:
        raise _refusal("message: type", name, ", ".join(sorted(_CLASSES)))
    made, fields = _CLASSES[name]
    values = []
    for field, kind, where in fields:
        if field not in wire:
            raise ProtocolError(f"{where}: missing")
        values.append(kind(where, wire[field]))
    if len(wire) > len(fields) + 1:
        unknown = set(wire) - {"type"} - {field for field, _, _ in fields}
        raise ProtocolError(f"{name}: unknown field {sorted(unknown)[0]!r}")
    return made(*values)


def encode(message):
    """The message as one JSON text."""
    return _as_json(to_wire(message))


def decode(text):
    """The message of one JSON text; raises ProtocolError for a text that is not one."""
    return from_wire(_parsed(text, "a JSON text"))


def decode_bunch(text):
    """The messages of one JSON text that is a list of them; neighbouring words of one answer come as one message.

    Raises:
        ProtocolError: it is no such list, or one of them is no message.
    """
    wires = _parsed(text, "a JSON list")
    if not isinstance(wires, list):
        raise _refusal("messages", wires, "a JSON list")
    joined = []
    for wire in wires:
        # Before they are checked: at hundreds of words a second, MicroPython had little time for anything else.
        if joined and _goes_on(joined[-1], wire):
            joined[-1]["text"] += wire["text"]
        else:
            joined.append(wire)
    return [from_wire(wire) for wire in joined]


def _goes_on(last, wire):
    """Whether two neighbours are words of the same part of one answer."""
    if not (isinstance(last, dict) and isinstance(wire, dict)) or wire.get("type") not in ("Delta", "ReasoningDelta"):
        return False
    same = last.get("type") == wire["type"] and last.get("id") == wire.get("id")
    return same and isinstance(last.get("text"), str) and isinstance(wire.get("text"), str)


def _parsed(text, allowed):
    try:
        return json.loads(text)
    except (ValueError, TypeError):
        raise _refusal("message", text, allowed) from None
