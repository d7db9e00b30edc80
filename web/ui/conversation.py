"""The conversation as the page holds it: messages with a state, the answer being written, and what is sent next.

Pure: it knows no DOM and no worker. Text of an answer arrives in pieces and is kept in pieces, so that a long answer
costs no more per piece than a short one. Thinking and tool calls are kept apart from the answer's text.
"""

from collections import namedtuple

# A call for a tool: `name` and `arguments` (JSON text) of a valid one, or else the `problem`; and what the model wrote.
ToolCall = namedtuple("ToolCall", ("name", "arguments", "problem", "raw"))


class _Text:
    """A text that grows by pieces."""

    def __init__(self, text=""):
        self._pieces = [text] if text else []

    def append(self, piece):
        if piece:
            self._pieces.append(piece)

    def whole(self):
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def empty(self):
        return not self._pieces


class Message:
    """One message.

    Attributes:
        id: for an answer, the id its events carry.
        role: "user" or "assistant".
        state: "streaming", "done", "cancelled" or "error".
        thinking: "" for none, "running", "done", or "cut" when the answer ended in the middle of it.
        thought_ms: how long the thinking took.
        calls: list of ToolCall.
        stats: of a finished answer: dict of prompt_tokens, cached_tokens, new_tokens, ttft_ms, prefill_tps,
            decode_tps, stop_reason; otherwise None.
    """

    def __init__(self, id, role, text, state):
        self.id, self.role, self.state, self.stats = id, role, state, None
        self.thinking, self.thought_ms, self.calls = "", 0.0, []
        self._text, self._reasoning = _Text(text), _Text()
        self._thinking_since = self._thinking_until = 0.0

    @property
    def text(self):
        """The whole text so far."""
        return self._text.whole()

    @property
    def reasoning(self):
        """The whole thinking so far."""
        return self._reasoning.whole()

    @property
    def empty(self):
        """Whether nothing has come yet: no text, no thinking, no call."""
        return self._text.empty and self._reasoning.empty and not self.calls

    def append(self, piece):
        """Add a piece to the end of the text."""
        self._text.append(piece)

    def think(self, piece, at):
        """Add a piece to the end of the thinking; `at` in milliseconds."""
        if self.thinking != "running":
            self.thinking, self._thinking_since = "running", at
        self._thinking_until = at
        self._reasoning.append(piece)

    def stop_thinking(self, at=None, *, cut=False):
        """The thinking has ended, by itself or cut off; without a time, with its last piece."""
        if self.thinking == "running":
            self.thinking = "cut" if cut else "done"
            self.thought_ms += (self._thinking_until if at is None else at) - self._thinking_since

    def finish(self, state, text, reasoning, stats=None):
        """Give the message its last state, and the text and thinking that stay."""
        self.state, self.stats = state, stats
        self._text, self._reasoning = _Text(text), _Text(reasoning)


class Conversation:
    """Messages in order; at most the last one is being written."""

    def __init__(self):
        self.messages = []
        self._last_id = 0

    @property
    def answer(self):
        """The answer being written, or None."""
        last = self.messages[-1] if self.messages else None
        return last if last is not None and last.state == "streaming" else None

    def ask(self, text):
        """Add the user's message and an empty answer; returns the answer."""
        self._last_id += 1
        self.messages.append(Message(self._last_id, "user", text, "done"))
        self.messages.append(Message(self._last_id, "assistant", "", "streaming"))
        return self.messages[-1]

    def take_back(self):
        """Remove the answer being written and the message it was to answer; returns that message's text."""
        self.messages.pop()
        return self.messages.pop().text

    def clear(self):
        """Begin anew. Ids go on, so that what is still said about an old answer finds none."""
        self.messages = []

    def history(self):
        """What the model is given: every message but the answer being written, an answer without words too.

        Thinking goes apart from the text: whether the model sees it again is for its template to say. Calls do not go:
        none can have been valid, because no tools are offered.
        """
        return [_plain(message) for message in self.messages if message.state != "streaming"]


def _plain(message):
    plain = {"role": message.role, "content": message.text}
    if message.reasoning:
        plain["reasoning_content"] = message.reasoning
    return plain
