"""Numbers in the words the page shows. Bytes are counted in decimal units, as download pages do. Pure."""

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def amount(done, total):
    """Such as "42 of 98 MB": both numbers in the unit that fits the total."""
    for size, unit in _UNITS:
        if total >= size:
            digits = 1 if unit == "GB" else 0
            return f"{done / size:.{digits}f} of {total / size:.{digits}f} {unit}"
    return f"{done} of {total} bytes"


def rate(bytes_per_second):
    """Such as "35 MB/s"."""
    for size, unit in _UNITS:
        if bytes_per_second >= size:
            return f"{bytes_per_second / size:.{0 if bytes_per_second >= 10 * size else 1}f} {unit}/s"
    return f"{bytes_per_second:.0f} bytes/s"


def duration(milliseconds):
    """Such as "850 ms" or "1.2 s"."""
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def tokens(count):
    """Such as "1 token" or "42 tokens"."""
    return f"{count} token" if count == 1 else f"{count} tokens"


def thinking(state, milliseconds):
    """What a message says above its thinking; see `conversation.Message` for the states."""
    if state == "running":
        return "Thinking…"
    words = "Thought" if milliseconds is None else f"Thought for {duration(milliseconds)}"
    return words if state == "done" else f"{words}, cut off"


def left_out(count):
    """What stands above the first message that the model is given."""
    words = "1 earlier message is" if count == 1 else f"{count} earlier messages are"
    return f"{words} left out of what the model reads: the context has no room for more"


def branch(place, count):
    """Such as "2 of 3"."""
    return f"{place} of {count}"


_CALL_STATES = {
    "asked": "Asked for",
    "waiting": "Waiting for you",
    "running": "Running",
    "done": "Done",
    "denied": "Not allowed",
    "failed": "Failed",
    "unrun": "Not run",
}


def call_state(state):
    """How it stands with a valid call; see `ui.calls` for the states."""
    return _CALL_STATES[state]


def invalid_call(problem):
    """What stands above a call that the model made in a way that cannot be run."""
    return f"Invalid tool call: {problem}"


def result(name):
    """What stands above the result of a call."""
    return f"Result of {name}" if name else "Result"


def calls(waiting, running):
    """What is going on while calls are run, from the names of the tools that wait for the user and of those that run."""
    if waiting:
        what = waiting[0] if len(waiting) == 1 else f"{len(waiting)} tools"
        return f"May {what} be run? The answer waits for you"
    return f"Running {', '.join(running)}" if running else "Running tools"


def rounds_exhausted(rounds):
    """What is said when a model asks for tools without end."""
    return (
        f"The model asked for tools {rounds} times in a row and asks again. These calls are not run. "
        "Send another message to go on."
    )


def tools(can_call):
    """What the settings say about tools; `can_call` is None while there is no model."""
    if can_call is None:
        return "Which tools there are is known when the model is ready."
    if not can_call:
        return "This model's chat template has no way of asking for tools, so it is offered none."
    return "The model may ask for those that are on. They make what it reads longer, so answers begin a little later."


def tool(described):
    """What a tool does, and whether the user is asked before it does that."""
    words = described["description"]
    return f"{words} You are asked before each call." if described["needs_approval"] else words


def system_hint(can_set):
    """What the settings say about the system prompt."""
    if can_set:
        return "For this conversation. Left empty, it is up to the model."
    return "It can be changed when the model is ready and no answer is being written."


def summary(stats):
    """One line about a finished answer: its length, its speed, the wait, and the prompt."""
    parts = [tokens(stats["new_tokens"])]
    if stats["decode_tps"] is not None:
        parts.append(f"{stats['decode_tps']:.1f} tok/s")
    if stats["ttft_ms"] is not None:
        parts.append(f"first after {duration(stats['ttft_ms'])}")
    prompt = f"prompt {tokens(stats['prompt_tokens'])}"
    if stats["cached_tokens"]:
        prompt += f", {stats['cached_tokens']} reused"
    parts.append(prompt)
    if stats["left_out"]:
        parts.append("1 message left out" if stats["left_out"] == 1 else f"{stats['left_out']} messages left out")
    if stats["stop_reason"] == "length":
        parts.append("cut at the length limit")
    return " · ".join(parts)
