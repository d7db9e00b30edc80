"""Calls that answers make for tools, and how it stands with each. Pure.

A call's state follows from the messages shown (its result tells how it ended) and from what the worker has told of the
request that is running.
"""

# States: "asked" (the answer is being written), "waiting" for the user, "running", "done", "denied", "failed", "unrun" (nobody
# ran it, and nobody will) and "invalid".
_ENDED = {"done": "done", "cancelled": "denied", "error": "failed", "interrupted": "failed"}


class ToolCall:
    """One call.

    Attributes:
        id: as the worker knows it; None before it has told of the answer.
        name: the tool; None if the call is malformed.
        arguments: JSON text; None if the call is malformed.
        problem: what is wrong with a malformed call; otherwise None.
        raw: what the model wrote.
        state: see above.
    """

    def __init__(self, name, arguments, problem, raw, id=None):
        self.id, self.name, self.arguments, self.problem, self.raw = id, name, arguments, problem, raw
        self.state = "asked" if problem is None else "invalid"


def calls_told(known, told):
    """The calls of an answer as the worker tells of them (`protocol.Shown`); those that are `known` already stay the same."""
    calls = []
    for place, entry in enumerate(told):
        call = known[place] if place < len(known) else None
        if call is None or (call.raw, call.problem) != (entry["raw"], entry["problem"]):
            call = ToolCall(entry["name"], entry["arguments"], entry["problem"], entry["raw"])
        call.id = entry["id"]
        calls.append(call)
    return calls


def settle_calls(messages, live):
    """Give each call its state, and each result the call it is of.

    Args:
        messages: `conversation.Message`s, in order.
        live: id of a call → its state, of the request that is running. Its calls are those of the last answer with calls;
            a conversation from elsewhere may have another call of the same id further up.
    """
    asking = [message for message in messages if message.calls][-1:]
    by_id = {}
    for message in messages:
        if message.role == "tool":
            call = by_id.get(message.call_id)
            message.result_of = call
            if call is not None:
                call.state = _ENDED[message.state]
            continue
        by_id = {}
        for call in message.calls:
            if call.problem is None:
                by_id[call.id] = call
                rest = "asked" if message.state == "streaming" else "unrun"
                call.state = live.get(call.id, rest) if message in asking else rest


def ended(state):
    """The state of a call whose result has this state."""
    return _ENDED[state]


def in_state(messages, state):
    """All calls that are in a state, in order."""
    return [call for message in messages for call in message.calls if call.state == state]
