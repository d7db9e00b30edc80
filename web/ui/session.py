"""The page's state: what it is doing, what it says, and how messages of the worker and wishes of the user change it.

One `Session` holds the app's state (`starting → fetching → loading → ready ⇄ busy`, `error` from any), the status
line, the progress, the notice and the conversation. Wishes (`send`, `stop`, …) return the message to post to the
worker, or None when there is nothing to do. Pure: the DOM shows what it finds here, and the clock comes in messages.
"""

from collections import namedtuple

import protocol
from ui import wording
from ui.calls import ToolCall, ended, in_state
from ui.conversation import Conversation
from ui.settings import Settings

# `action` is what the notice's button does: "retry", "reload" or "" for none; `error` the class of what failed.
Notice = namedtuple("Notice", ("text", "error", "action"))

_STAGES = {"fetch": ("fetching", "Fetching"), "open": ("loading", "Opening")}
_BUSY = "An answer is being written. Wait for it to finish, or stop it first."
_RATE_WINDOW_MS = 3000
_WORTH_RETRYING = ("DeliveryError",)  # what failed may not fail again: the network, the device's storage


class Session:
    """See the module.

    Attributes:
        state: starting, fetching, loading, ready, busy or error.
        status: what is happening, in a few words.
        detail: numbers that go with it and change often, such as "42 of 98 MB, 35 MB/s"; may be empty.
        fraction: of the present step that is done, 0 to 1; None when that is not known.
        notice: a Notice or None.
        model: Ready's words about the model; empty before.
        system: the conversation's system prompt; empty where that is left to the model's template.
        settings: a `Settings`.
        draft: text that goes back to the composer; the view takes it with `take_draft`.
    """

    def __init__(self, options, problems=(), conversation="", settings=""):
        self._options = options
        self.system, self.settings = "", Settings(settings)
        self.state, self.status, self.detail, self.fraction = "starting", "Starting Python", "", None
        self.notice = Notice("\n".join(problems), "", "") if problems else None
        self.model = ""
        self.conversation = Conversation(conversation)
        self._draft = ""
        self._steps = []  # (at, bytes done) of the present stage, for the rate
        self._stage = None
        self._waiting = None  # what was said about waiting for another tab
        self._running = None  # id of the request the worker is busy with; it outlives a cleared conversation
        self._left = None  # id of the conversation that was left, of which nothing more is shown
        self._sent_at = self._first_at = None
        self._reading = ""  # what is said while the model reads its prompt
        if options.manifest is None:
            self._enter("error", "No model was loaded")

    @property
    def can_set_system(self):
        """Whether the system prompt can be changed now."""
        return self.state == "ready"

    @property
    def answer_is_running(self):
        """Whether the worker is busy with a request."""
        return self._running is not None

    # ------------------------------------------------------------------------------------------- wishes of the user

    def load(self):
        """The page's Python and the worker's are up: ask for the conversation and the model."""
        if self._options.manifest is None:
            return None
        self._enter("fetching", "Looking up the model")
        return protocol.Load(*self._options[:5], self.conversation.key or None)

    def retry(self):
        """Ask for the model once more."""
        self.notice = None
        return self.load()

    def send(self, text, at):
        """Ask the model; None when there is nothing to ask or it cannot answer now. `at`: milliseconds since the epoch."""
        if not text.strip():
            return None
        if self.state == "busy":
            self.notice = Notice(_BUSY, "", "")
            return None
        if self.state != "ready":
            return None
        return protocol.Send(self._begin(at, question=text), text, self._wanted)

    def edit(self, message, text, at):
        """Put a question in other words, and ask that; None as `send`."""
        if self.state != "ready" or message.id is None or not text.strip():
            return None
        return protocol.Edit(self._begin(at, replacing=message, question=text), message.id, text, self._wanted)

    def regenerate(self, message, at):
        """Answer again; None when that is not possible now."""
        if self.state != "ready" or message.id is None:
            return None
        return protocol.Regenerate(self._begin(at, replacing=message), message.id, self._wanted)

    def go_on(self, message, at):
        """Go on with an answer that was cut off; None when that is not possible now."""
        if self.state != "ready" or message.id is None or not message.may_go_on:
            return None
        return protocol.Continue(self._begin(at, replacing=message, base=message), message.id, self._wanted)

    def run_again(self, result, at):
        """Run the call of a result again; None when that is not possible now."""
        if self.state != "ready" or result.id is None:
            return None
        return protocol.Retry(self._begin(at, replacing=result, answer=False), result.id, self._wanted)

    def decide(self, call, *, allowed):
        """Say whether a call that waits for it may be run; None if it does not wait."""
        if call.state != "waiting":
            return None
        self.conversation.set_call(call.id, "asked")  # until the worker tells more
        self._tell_of_calls()
        return (protocol.Approve if allowed else protocol.Deny)(self._running, call.id)

    def set_system(self, text):
        """Give the conversation another system prompt; None when that is not possible now or changes nothing."""
        if text == self.system or not self.can_set_system:
            return None
        self.system = text
        return protocol.SetSystem(text)

    def select(self, message, step):
        """Show the branch before (-1) or behind (1) that of a message; None when there is none."""
        if self.state != "ready" or message.id is None:
            return None
        place = message.branches.index(message.id) + step
        return protocol.Select(message.branches[place]) if 0 <= place < len(message.branches) else None

    @property
    def _wanted(self):
        settings = self.settings
        return {"sampling": self._options.sampling, "tools": settings.offered, "thinking": settings.thinking}

    def _begin(self, at, **what):
        """The id of a new request."""
        self._running = self.conversation.begin(**what)
        self.notice = None
        self._sent_at, self._first_at, self._reading = at, None, "Reading your message"
        self._enter("busy", self._reading)
        return self._running

    def stop(self):
        """End the answer being written."""
        if self._running is None:
            return None
        for call in in_state(self.conversation.messages, "waiting"):
            self.conversation.set_call(call.id, "asked")  # whatever is said now comes too late
        self._enter("busy", "Stopping")
        return protocol.Cancel(self._running)

    def new_chat(self):
        """Begin a new conversation.

        An answer being written is ended, and the page stays busy until the worker says that it has stopped.
        """
        self._left = self.conversation.key
        self.conversation.clear()
        self.notice = None
        if self._running is not None:
            self._enter("busy", "Stopping")
        return protocol.NewChat()

    def remark(self, text):
        """Tell the user something that changes nothing else."""
        self.notice = Notice(text, "", "")

    def dismiss(self):
        """Close the notice; one that says why nothing works stays."""
        if self.state != "error":
            self.notice = None

    def take_draft(self):
        """The text that goes back to the composer, once; usually empty."""
        draft, self._draft = self._draft, ""
        return draft

    # -------------------------------------------------------------------------------------- messages of the worker

    def receive(self, message):
        """Change as the worker's message says; what concerns an older answer is dropped."""
        handle = self._HANDLERS.get(type(message))
        if handle is None:
            raise protocol.ProtocolError(f"{type(message).__name__}: not a message to the page")
        handle(self, message)

    def engine_lost(self, error, text):
        """The worker cannot be reached any more; only a reload of the page helps."""
        self._settle("error", cut=True)
        self._running = None
        self.notice = Notice(text, error, "reload")
        self._enter("error", "The engine stopped")

    def _progress(self, message):
        self._go_on_loading()
        state, words = _STAGES[message.stage]
        if message.stage != self._stage:
            self._stage, self._steps = message.stage, []
        self._enter(state, f"{words} {message.name}")
        if not message.total:
            return
        self.fraction = message.done / message.total
        self.detail = wording.amount(message.done, message.total)
        self._steps.append((message.at, message.done))
        while message.at - self._steps[0][0] > _RATE_WINDOW_MS and len(self._steps) > 2:
            self._steps.pop(0)
        elapsed, moved = message.at - self._steps[0][0], message.done - self._steps[0][1]
        if message.stage == "fetch" and elapsed > 0 and moved > 0:
            self.detail += f", {wording.rate(1000 * moved / elapsed)}"

    def _wait(self, message):
        self.notice = self._waiting = Notice(message.text, "", "")
        self._enter(_STAGES[message.stage][0], "Waiting for another tab")

    def _go_on_loading(self):
        """If there was a wait, it is over, and what was said about it is no longer true."""
        if self.notice is not None and self.notice is self._waiting:
            self.notice = None

    def _remark(self, message):
        self.remark(message.text)

    def _ready(self, message):
        self.model = f"{message.model} · {message.executor} · {message.context} tokens of context"
        self._stage = None
        self._go_on_loading()
        self._enter("ready", "Ready")

    def _shown(self, message):
        if message.conversation != self._left:
            self._left = None
            self.conversation.show(message.conversation, message.first, message.messages)

    def _fitted(self, message):
        if self._current(message):
            self.conversation.left_out = message.left_out

    def _prompt_ready(self, message):
        if self._current(message):
            self.status, self.detail = self._reading, wording.tokens(message.prompt_tokens)

    def _prefill(self, message):
        if self._current(message):
            self.fraction = message.done / message.total if message.total else None
            self.status, self.detail = self._reading, f"{message.done} of {wording.tokens(message.total)}"

    def _delta(self, message):
        answer = self._current(message)
        if answer and message.text:
            self._go_on(answer, message.at)
            answer.append(message.text)

    def _reasoning_delta(self, message):
        answer = self._current(message)
        if answer and message.text:
            self._go_on(answer, message.at, thinking=True)
            answer.think(message.text, message.at)

    def _tool_call(self, message):
        answer = self._current(message)
        if answer:
            self._go_on(answer, message.at)
            answer.call(ToolCall(message.name, message.arguments, message.problem, message.raw))

    def _go_on(self, answer, at, *, thinking=False):
        """The answer goes on with thinking, or with text or a call."""
        if answer.empty:
            self._first_at = at
        if answer.empty or thinking != (answer.thinking == "running"):
            self._enter("busy", "Thinking" if thinking else "Answering")
        if not thinking:
            answer.stop_thinking(at)

    def _step(self, message):
        if message.id != self.conversation.request:
            return
        if message.to == "tools":
            if self.conversation.answer is not None:
                self.conversation.answer.stop_thinking(message.at)
            self.conversation.end_answer()
            self._enter("busy", "Running tools")
        else:
            self.conversation.begin_answer()
            self._sent_at, self._first_at, self._reading = message.at, None, "Reading the results"
            self._enter("busy", self._reading)

    def _approval_needed(self, message):
        self._set_call(message, "waiting")

    def _tool_started(self, message):
        self._set_call(message, "running")

    def _tool_ended(self, message):
        self._set_call(message, ended(message.state))

    def _set_call(self, message, state):
        if message.id == self.conversation.request:
            self.conversation.set_call(message.call, state)
            self._tell_of_calls()

    def _tell_of_calls(self):
        waiting = in_state(self.conversation.messages, "waiting")
        running = in_state(self.conversation.messages, "running")
        self._enter("busy", wording.calls([call.name for call in waiting], [call.name for call in running]))

    def _rounds_exhausted(self, message):
        if message.id == self.conversation.request:
            self.notice = Notice(wording.rounds_exhausted(message.rounds), "", "")

    def _abilities(self, message):
        self.settings.learn(message)

    def _system(self, message):
        self.system = message.text

    def _finished(self, message):
        if message.id != self._running:
            return
        if message.id == self.conversation.request:
            state = "cancelled" if message.reason == "cancelled" else "done"
            self._settle(state, message.at, cut=message.reason != "stop", stats=self._stats(message))
        self._at_rest()

    def _settle(self, state, at=None, *, cut, stats=None):
        """The answer has ended: a partial one stays and is marked; without one, the question goes back to the composer."""
        if self.conversation.answer is not None:
            self.conversation.answer.stop_thinking(at, cut=cut)
        self._draft = self.conversation.settle(state, stats)

    def _stats(self, message):
        return {
            "prompt_tokens": message.prompt_tokens,
            "cached_tokens": message.cached_tokens,
            "new_tokens": message.new_tokens,
            "left_out": message.left_out,
            "ttft_ms": None if self._first_at is None else self._first_at - self._sent_at,
            "prefill_tps": message.prefill_tps,
            "decode_tps": message.decode_tps,
            "stop_reason": message.reason,
        }

    def _failed(self, message):
        if message.id == 0:
            # Before the model was asked for, it is the worker itself that could not start.
            again = "retry" if message.error in _WORTH_RETRYING else ""
            self.notice = Notice(message.text, message.error, "reload" if self.state == "starting" else again)
            self._enter("error", "The model could not be loaded")
        elif message.id == self._running:
            if message.id == self.conversation.request:
                self._settle("error", cut=True)
            self.notice = Notice(message.text, message.error, "")
            self._at_rest()

    def _at_rest(self):
        self._running = None
        if self.notice is not None and self.notice.text == _BUSY:
            self.notice = None
        self._enter("ready", "Ready")

    def _current(self, message):
        answer = self.conversation.answer
        return answer if answer is not None and answer.request == message.id else None

    def _enter(self, state, status):
        self.state, self.status, self.detail, self.fraction = state, status, "", None

    _HANDLERS = {
        protocol.Progress: _progress,
        protocol.Waiting: _wait,
        protocol.Remark: _remark,
        protocol.Ready: _ready,
        protocol.Shown: _shown,
        protocol.Fitted: _fitted,
        protocol.PromptReady: _prompt_ready,
        protocol.Prefill: _prefill,
        protocol.Delta: _delta,
        protocol.ReasoningDelta: _reasoning_delta,
        protocol.ToolCall: _tool_call,
        protocol.Step: _step,
        protocol.ApprovalNeeded: _approval_needed,
        protocol.ToolStarted: _tool_started,
        protocol.ToolEnded: _tool_ended,
        protocol.ToolRoundsExhausted: _rounds_exhausted,
        protocol.Abilities: _abilities,
        protocol.System: _system,
        protocol.Finished: _finished,
        protocol.Failed: _failed,
    }
