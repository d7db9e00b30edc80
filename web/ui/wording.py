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


def call(tool_call):
    """What a message says above a call that the model made for a tool."""
    return f"Call of {tool_call.name}" if tool_call.problem is None else f"Invalid tool call: {tool_call.problem}"


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
