"""The messages that the page shows: their states, the answer being written, and how both change.

The conversation itself is the worker's, with all its branches; the page has the messages of the branch shown. What the user
asks for is shown at once: the new question and an empty answer have no id until the worker has told of them (`show`), and
go again if it does not (`settle`). A request may have several answers, with results of calls between them (`end_answer`,
`begin_answer`).

Pure: it knows no DOM and no worker. Text of an answer arrives in pieces and is kept in pieces, so that a long answer
costs no more per piece than a short one. Thinking and tool calls are kept apart from the answer's text.
"""

from ui.calls import calls_told, settle_calls

_MAY_GO_ON = ("cancelled", "interrupted", "error")


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


class Message:
    """One message.

    Attributes:
        id: as the worker knows it; None before the worker has told of the message.
        request: of an answer being written: the id its events carry; otherwise 0.
        role: "user", "assistant" or "tool".
        state: "streaming", "done", "cancelled", "interrupted" or "error".
        empty: whether nothing has come of an answer being written yet: no text, no thinking, no call.
        thinking: "" for none, "running", "done", or "cut" when the answer ended in the middle of it.
        thought_ms: how long the thinking took; None if that is not known.
        calls: list of `calls.ToolCall`.
        call_id: of a tool's result: the id of its call.
        result_of: of a tool's result: its call, if that is shown.
        branches: ids of all messages at the same place, oldest first.
        stats: of a finished answer: dict of prompt_tokens, cached_tokens, new_tokens, left_out, ttft_ms, prefill_tps,
            decode_tps, stop_reason; otherwise None.
    """

    def __init__(self, role, text="", state="done", request=0):
        self.id, self.request, self.role, self.state = None, request, role, state
        self.empty, self.calls, self.branches, self.stats = True, [], [], None
        self.call_id = self.result_of = None
        self._kept = None  # (state, stats) that the worker has told of an answer that is shown as being written
        self.thinking, self.thought_ms = "", 0.0
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
    def may_go_on(self):
        """Whether it is an answer that was cut off and can be continued."""
        cut = self.state in _MAY_GO_ON or (self.stats is not None and self.stats["stop_reason"] == "length")
        return self.role == "assistant" and cut and not self.calls and bool(self.text or self.reasoning)

    def append(self, piece):
        """Add a piece to the end of the text."""
        self.empty = False
        self._text.append(piece)

    def call(self, call):
        """Add a call for a tool."""
        self.empty = False
        self.calls.append(call)

    def think(self, piece, at):
        """Add a piece to the end of the thinking; `at` in milliseconds."""
        if self.thinking != "running":
            self.thinking, self._thinking_since = "running", at
        self._thinking_until = at
        self.empty = False
        self._reasoning.append(piece)

    def stop_thinking(self, at=None, *, cut=False):
        """The thinking has ended, by itself or cut off; without a time, with its last piece."""
        if self.thinking == "running":
            self.thinking = "cut" if cut else "done"
            took = (self._thinking_until if at is None else at) - self._thinking_since
            self.thought_ms = (self.thought_ms or 0.0) + took

    def go_on_from(self, answer):
        """Begin with what another answer has."""
        self._text, self._reasoning = _Text(answer.text), _Text(answer.reasoning)
        self.thinking, self.thought_ms = "done" if answer.reasoning else "", answer.thought_ms

    def adopt(self, told):
        """Take over what the worker tells of the message (an entry of `protocol.Shown`)."""
        self.id, self.branches, self.call_id = told["id"], told["branches"], told["call_id"]
        self._text, self._reasoning = _Text(told["text"]), _Text(told["reasoning"])
        self.calls = calls_told(self.calls, told["calls"])
        if self.state == "streaming":
            self._kept = (told["state"], told["stats"])
            return
        self.state, self.stats = told["state"], told["stats"]
        if self.reasoning and not self.thinking:
            self.thinking, self.thought_ms = "done" if self.text or self.state == "done" else "cut", None

    def finish(self, state, stats=None):
        """Give an answer its last state."""
        self.state, self.stats, self.request = state, stats, 0

    def finish_as_told(self):
        """Give an answer the last state that the worker has told."""
        self.finish(*(self._kept or ("done", None)))


class Conversation:
    """Messages in order; at most the last one is being written.

    Attributes:
        key: the conversation's id; empty if neither an earlier page nor the worker has told it.
        messages: those shown.
        left_out: how many of the first ones the model is not given, because there is no room for them.
        request: id of the request whose answers are shown as they come; None when there is none.
    """

    def __init__(self, key=""):
        self.key, self.messages, self.left_out, self.request = key, [], 0, None
        self._last_request = 0
        self._live = {}  # id of a call of that request → its state
        self._asked = None  # the question of the request that is running
        self._replaced = []  # ids of what it took away, which may come back

    @property
    def answer(self):
        """The answer being written, or None."""
        last = self.messages[-1] if self.messages else None
        return last if last is not None and last.state == "streaming" else None

    def begin(self, *, replacing=None, question=None, base=None, answer=True):
        """Begin a request: add an empty answer, with a question before it if there is one; returns the request's id.

        Args:
            replacing: the message in whose place this comes, and of all behind it.
            question: text of the user.
            base: the answer that this one goes on with.
            answer: whether it begins with an answer, and not with a call.
        """
        self._replaced = []
        if replacing is not None:
            place = self.messages.index(replacing)
            self._replaced = [message.id for message in self.messages[place:]] + replacing.branches
            self.messages = self.messages[:place]
        self._asked = None if question is None else Message("user", question)
        if self._asked is not None:
            self.messages.append(self._asked)
        self._last_request += 1
        self.request, self._live = self._last_request, {}
        if answer:
            self.begin_answer(base)
        return self.request

    def begin_answer(self, base=None):
        """Add an empty answer of the present request, or one that goes on with `base`."""
        answer = Message("assistant", "", "streaming", self.request)
        if base is not None:
            answer.go_on_from(base)
        self.messages.append(answer)

    def end_answer(self):
        """The answer being written is whole, but its request goes on."""
        if self.answer is not None:
            self._live = {call.id: "asked" for call in self.answer.calls}
            self.answer.finish_as_told()
            settle_calls(self.messages, self._live)

    def set_call(self, call_id, state):
        """The worker has told of a call of the present request; `state` as in `calls`."""
        self._live[call_id] = state
        settle_calls(self.messages, self._live)

    def show(self, key, first, told):
        """Show what the worker tells: the first `first` messages stay, these follow. What it does not know yet stays too."""
        rest = self.messages[first:]
        self.key, self.messages = key, self.messages[:first]
        for entry in told:
            message = self._known(rest, entry)
            if message is None:
                message = Message(entry["role"])
            else:
                rest.remove(message)
            message.adopt(entry)
            self.messages.append(message)
        self.messages += [message for message in rest if message.id is None]
        if self.answer is None:
            counted = [message.stats["left_out"] for message in self.messages if message.stats]
            self.left_out = counted[-1] if counted else 0
        settle_calls(self.messages, self._live)

    def settle(self, state, stats=None):
        """The request has ended. An answer that nobody kept goes; returns the text of its question, if that went too."""
        answer, asked, self._asked = self.answer, self._asked, None
        self.request, self._live = None, {}
        if answer is not None and (answer.id is not None or not answer.empty):
            answer.finish(state, stats)
        settle_calls(self.messages, self._live)
        if self.answer is None:
            return ""
        self.messages.remove(answer)
        if asked is None or (asked.id is not None and asked in self.messages):
            return ""
        self.messages = [message for message in self.messages if message is not asked]
        return asked.text

    def clear(self):
        """Begin anew. Ids of requests go on, so that what is still said about an old answer finds none."""
        self.messages, self.left_out, self._asked = [], 0, None
        self.request, self._live = None, {}

    def _known(self, messages, entry):
        """The one of these messages that the worker's entry is about, or None.

        It may be one that has no id yet, but for an entry that had been shown before the request.
        """
        for message in messages:
            if message.id == entry["id"]:
                return message
            if message.id is None and message.role == entry["role"] and entry["id"] not in self._replaced:
                return message
        return None
