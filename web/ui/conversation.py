"""The conversation as the page holds it: messages with a state, the answer being written, and what is sent next.

Pure: it knows no DOM and no worker. Text of an answer arrives in pieces and is kept in pieces, so that a long answer
costs no more per piece than a short one.
"""


class Message:
    """One message.

    Attributes:
        id: for an answer, the id its events carry.
        role: "user" or "assistant".
        state: "streaming", "done", "cancelled" or "error".
        stats: of a finished answer: dict of prompt_tokens, cached_tokens, new_tokens, ttft_ms, prefill_tps,
            decode_tps, stop_reason; otherwise None.
    """

    def __init__(self, id, role, text, state):
        self.id, self.role, self.state, self.stats = id, role, state, None
        self._pieces = [text] if text else []

    @property
    def text(self):
        """The whole text so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def empty(self):
        """Whether nothing has been written yet."""
        return not self._pieces

    def append(self, piece):
        """Add a piece to the end."""
        if piece:
            self._pieces.append(piece)

    def finish(self, state, text, stats=None):
        """Give the message its last state and the text that stays."""
        self.state, self.stats = state, stats
        self._pieces = [text] if text else []


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
        """What the model is given: role and content of every message but the answer being written."""
        return [{"role": message.role, "content": message.text} for message in self.messages if not message.empty]
