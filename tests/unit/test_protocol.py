"""The messages between the page and the worker: every one survives the crossing, and no other gets through."""

from __future__ import annotations

import json

import protocol
import pytest
from protocol import decode, encode, from_wire, to_wire

STATS = {
    "prompt_tokens": 42,
    "cached_tokens": 41,
    "new_tokens": 5,
    "left_out": 2,
    "ttft_ms": None,
    "prefill_tps": 30.5,
    "decode_tps": 20.0,
    "stop_reason": "stop",
}
SHOWN = {
    "id": "m1",
    "role": "assistant",
    "text": "Paris",
    "reasoning": "Hm",
    "calls": [{"id": "call00001", "name": "weather", "arguments": "{}", "problem": None, "raw": "{}"}],
    "call_id": None,
    "state": "done",
    "stats": STATS,
    "branches": ["m0", "m1"],
}
SETTINGS = {"sampling": {"temperature": 0, "seed": 2**64 - 1}, "tools": ["clock"], "thinking": None}
MESSAGES = [
    protocol.Load("http://h/seed/default.json", "http://h/", "auto", None, None, None),
    protocol.Load("http://h/seed/default.json", "http://h/", "numpy", 2048, 2, "c1"),
    protocol.Send(1, 'a "quoted" line\n\u2028 😀', SETTINGS),
    protocol.Edit(2, "m1", "other words", {**SETTINGS, "tools": [], "thinking": False}),
    protocol.Regenerate(3, "m2", SETTINGS),
    protocol.Continue(4, "m2", SETTINGS),
    protocol.Retry(5, "m3", SETTINGS),
    protocol.Approve(5, "call00001"),
    protocol.Deny(5, "call00001"),
    protocol.SetSystem("Be brief. 😀"),
    protocol.Select("m3"),
    protocol.NewChat(),
    protocol.Cancel(7),
    protocol.CodeRan(3, "done", "a \0 zero\n", "'😀'"),
    protocol.Progress("fetch", "the model", 5_000_000_000, 9_000_000_000, 1_800_000_000_000.25),
    protocol.Waiting("fetch", "Another tab is fetching the model", 1.0),
    protocol.Remark("Using the stored model list", 1.0),
    protocol.Abilities([{"name": "clock", "description": "Tells.", "needs_approval": True}], True, None, 1.0),
    protocol.Abilities([], False, False, 1.0),
    protocol.System("", 1.0),
    protocol.Ready("SmolLM2", "numpy", 4096, 1_800_000_000_000.0),
    protocol.Shown("c1", 1, [SHOWN, {**SHOWN, "role": "user", "stats": None, "calls": []}], 1.0),
    protocol.Shown("c1", 2, [{**SHOWN, "role": "tool", "stats": None, "calls": [], "call_id": "call00001"}], 1.0),
    protocol.Shown("c1", 0, [], 1.0),
    protocol.Fitted(1, 4, 1.0),
    protocol.PromptReady(1, 42, 0, 1.0),
    protocol.Prefill(1, 32, 42, 1.0),
    protocol.Delta(1, " Paris", 1.0),
    protocol.ReasoningDelta(1, "Hm 🤔", 1.0),
    protocol.ToolCall(1, "weather", '{"city": "Paris"}', None, '{"name": "weather"}', 1.0),
    protocol.ToolCall(1, None, None, "incomplete", '{"name"', 1.0),
    protocol.Step(1, "tools", 1.0),
    protocol.Step(1, "answer", 1.0),
    protocol.ApprovalNeeded(1, "call00001", 1.0),
    protocol.ToolStarted(1, "call00001", 1.0),
    protocol.ToolEnded(1, "call00001", "cancelled", 1.0),
    protocol.ToolRoundsExhausted(1, 8, 1.0),
    protocol.Finished(1, "stop", "Paris", "Hm 🤔", 42, 0, 1, 0, 30.5, None, 1.0),
    protocol.RunCode(3, "print('a \0 zero')\n'😀'", 10, 256, 4000),
    protocol.StopCode(3),
    protocol.Failed(0, "DeliveryError", "seed: no source delivered it", 1.0),
]


def send(**changes):
    return {"type": "Send", "id": 1, "text": "", "settings": {**SETTINGS, **changes}}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_out_of_the_wire_as_it_went_in(message):
    assert from_wire(to_wire(message)) == message
    assert decode(encode(message)) == message
    assert type(decode(encode(message))) is type(message)


def test_every_message_of_the_protocol_is_tried_here():
    named = {name for name, value in vars(protocol).items() if name[0].isupper() and isinstance(value, type)}
    assert {type(message).__name__ for message in MESSAGES} == named - {"ProtocolError"}


def test_the_wire_is_a_plain_dict_that_names_the_message():
    assert to_wire(protocol.Delta(3, "x", 2)) == {"type": "Delta", "id": 3, "text": "x", "at": 2.0}


def test_wide_integers_and_times_cross_as_text():
    """MicroPython passes integers to and from JavaScript as 32 bits; as JSON text they keep all their digits."""
    crossed = json.loads(encode(protocol.Progress("fetch", "", 5_000_000_000, 9_000_000_000, 1_800_000_000_000.25)))
    assert (crossed["total"], crossed["at"]) == (9_000_000_000, 1_800_000_000_000.25)


def test_emoji_cross_as_they_are():
    """Of an escaped pair of surrogates, MicroPython reads two halves."""
    assert "😀" in encode(protocol.Delta(1, "😀", 0))


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        ([], 'message: [] is not allowed (allowed: a dict with a "type")'),
        ({}, "message: type: None is not allowed (allowed: Abilities, Approv"),
        ({"type": "Reboot"}, "message: type: 'Reboot' is not allowed"),
        ({"type": ["Cancel"]}, "message: type: ['Cancel'] is not allowed"),
        ({"type": "Cancel"}, "Cancel.id: missing"),
        ({"type": "Cancel", "id": 1, "now": True}, "Cancel: unknown field 'now'"),
        ({"type": "Cancel", "id": "1"}, "Cancel.id: '1' is not allowed (allowed: an integer >= 0)"),
        ({"type": "Cancel", "id": True}, "Cancel.id: True is not allowed"),
        ({"type": "Cancel", "id": -1}, "Cancel.id: -1 is not allowed"),
        ({"type": "Delta", "id": 1, "text": None, "at": 0}, "Delta.text: None is not allowed (allowed: a text)"),
        ({"type": "Delta", "id": 1, "text": "", "at": float("nan")}, "Delta.at: nan is not allowed (allowed: a finite"),
        (
            {"type": "Progress", "stage": "cook", "name": "", "done": 0, "total": 0, "at": 0},
            "Progress.stage: 'cook' is",
        ),
        (send(sampling={"seed": "1"}), "Send.settings.sampling.seed: '1' is not allowed"),
        (send(sampling=[]), "Send.settings.sampling: [] is not allowed"),
        (send(tools=[1]), "Send.settings.tools[0]: 1 is not allowed (allowed: a text)"),
        (send(thinking=1), "Send.settings.thinking: 1 is not allowed (allowed: true or false)"),
        (send(more=1), "Send.settings: {"),
        (
            {"type": "CodeRan", "run": 1, "ended": "well", "output": "", "text": ""},
            "CodeRan.ended: 'well' is not allowed",
        ),
        (
            {"type": "Shown", "conversation": "c", "first": 0, "messages": {}, "at": 0},
            "Shown.messages: {} is not allowed (allowed: a list)",
        ),
        (
            {"type": "Shown", "conversation": "c", "first": 0, "messages": [{"id": "m"}], "at": 0},
            "Shown.messages[0]: {'id': 'm'} is not allowed (allowed: a dict of id, role, ",
        ),
        (
            {"type": "Shown", "conversation": "c", "first": 0, "messages": [{**SHOWN, "state": "streaming"}], "at": 0},
            "Shown.messages[0].state: 'streaming' is not allowed",
        ),
        (
            {
                "type": "Shown",
                "conversation": "c",
                "first": 0,
                "messages": [{**SHOWN, "stats": {**STATS, "new_tokens": -1}}],
                "at": 0,
            },
            "Shown.messages[0].stats.new_tokens: -1 is not allowed",
        ),
    ],
)
def test_a_malformed_message_is_refused_and_the_field_is_named(wire, words):
    with pytest.raises(protocol.ProtocolError) as raised:
        from_wire(wire)
    assert str(raised.value).startswith(words)


def test_a_malformed_message_is_refused_before_it_is_sent():
    with pytest.raises(protocol.ProtocolError, match=r"Cancel\.id: None is not allowed"):
        to_wire(protocol.Cancel(None))
    with pytest.raises(protocol.ProtocolError, match="message: 'stop' is not allowed"):
        to_wire("stop")


def test_what_is_no_json_is_refused_in_a_sentence_of_bounded_length():
    with pytest.raises(protocol.ProtocolError, match=r"message: .* is not allowed \(allowed: a JSON text\)") as raised:
        decode("x" * 100_000)
    assert len(str(raised.value)) < 200
