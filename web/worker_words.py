"""What the worker tells the page: events, messages of the tree and tools, in the words of the protocol."""

import json

import protocol

from pyruntime.chat.tool_calls import InvalidToolCall
from pyruntime.conversation.events import ApprovalNeeded, PromptFitted, ToolEnded, ToolRoundsExhausted, ToolStarted
from pyruntime.events import (
    CallInvalid,
    CallReady,
    Delta,
    Finished,
    PrefillProgress,
    PromptReady,
    ReasoningDelta,
)

_LARGEST = 10**15  # of any figure
# Characters that are not printable, and yet belong to ordinary writing: line ends, spaces, what joins letters and emoji.
_ORDINARY = "\n\u00a0\u3000\u200c\u200d"


def described(tool):
    """A tool as the page is told of it: of its description the first sentence, since the rest is for the model."""
    sentence, stop, _ = tool.description.partition(". ")
    return {"name": tool.name, "description": sentence + stop.rstrip(), "needs_approval": tool.needs_approval}


def shown(tree, node):
    """A message as the page is told of it."""
    return {
        "id": node.id,
        "role": node.role,
        "text": node.text,
        "reasoning": node.reasoning,
        "calls": [_call(call) for call in node.calls],
        "call_id": node.call_id,
        "state": node.state,
        "stats": _stats(node) if node.usage else None,
        "branches": list(tree.siblings(node.id)),
    }


def _call(call):
    return {
        "id": call.id,
        "name": None if call.problem else call.name,
        "arguments": None if call.problem else _readable(json.loads(call.arguments)),
        "problem": call.problem,
        "raw": call.raw,
    }


def _stats(node):
    """The figures of an answer; a file from elsewhere may lack any of them, or have one that cannot be."""
    counts = {name: node.usage.get(name, 0) for name in ("prompt_tokens", "cached_tokens", "new_tokens", "left_out")}
    speed = {name: node.timings.get(name) for name in ("ttft_ms", "prefill_tps", "decode_tps")}
    return {
        **{name: count if 0 <= count < _LARGEST else 0 for name, count in counts.items()},
        **{name: rate if rate is not None and 0 <= rate < _LARGEST else None for name, rate in speed.items()},
        "stop_reason": node.stop_reason or "",
    }


def told(answer, event, now):
    """The message that tells the page of an event about this answer, at this time; None for what it need not know."""
    if isinstance(event, Delta):
        return protocol.Delta(answer, event.text, now)
    if isinstance(event, ReasoningDelta):
        return protocol.ReasoningDelta(answer, event.text, now)
    if isinstance(event, (CallReady, CallInvalid)):
        return _told_of_writing(answer, event.call, now)
    if isinstance(event, (ApprovalNeeded, ToolStarted, ToolEnded)):
        return _told_of_running(answer, event, now)
    if isinstance(event, ToolRoundsExhausted):
        return protocol.ToolRoundsExhausted(answer, event.rounds, now)
    if isinstance(event, PromptFitted):
        return protocol.Fitted(answer, len(event.left_out), now)
    if isinstance(event, PrefillProgress):
        return protocol.Prefill(answer, event.done, event.total, now)
    if isinstance(event, PromptReady):
        return protocol.PromptReady(answer, event.prompt_tokens, event.cached_tokens, now)
    if isinstance(event, Finished):
        usage, timings = event.usage, event.timings
        return protocol.Finished(
            answer,
            event.reason,
            event.text,
            event.reasoning,
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.new_tokens,
            usage.left_out,
            timings.prefill_tps,
            timings.decode_tps,
            now,
        )
    return None


def _told_of_writing(answer, call, now):
    if isinstance(call, InvalidToolCall):
        return protocol.ToolCall(answer, None, None, call.problem, call.raw, now)
    return protocol.ToolCall(answer, call.name, _readable(call.arguments), None, call.raw, now)


def _told_of_running(answer, event, now):
    if isinstance(event, ApprovalNeeded):
        return protocol.ApprovalNeeded(answer, event.call.id, now)
    if isinstance(event, ToolStarted):
        return protocol.ToolStarted(answer, event.call.id, now)
    return protocol.ToolEnded(answer, event.call.id, event.state, now)


def _readable(arguments):
    """Arguments as JSON text. A person decides by what is seen of them, so what is not, or turns the writing round, is escaped."""
    text = json.dumps(arguments, indent=2, ensure_ascii=False)
    return "".join([_visible(character) for character in text])


def _visible(character):
    return character if character.isprintable() or character in _ORDINARY else json.dumps(character)[1:-1]
