"""The page: passes the user's wishes and the worker's messages to the `Session`, and shows what it finds there.

All decisions are the session's. Pieces of an answer are shown at most once per frame, and showing takes at most a
tenth of the time: the longer a frame took, layout and paint included, the longer the next one waits. So a long answer, or
one in rare scripts, stays as light as a short one, and leaves the cores to the threads that compute. The performance marks of an answer carry the worker's times, on the page's clock.
"""

import asyncio
import json

import js
import protocol
from ui.app_view import AppView
from ui.engine_link import EngineLink
from ui.message_view import MessageView
from ui.options import read_options
from ui.sandbox_link import SandboxLink
from ui.session import Session

_PAUSE = 9  # times what a frame took
_ANSWER_MARKS = ("send", "prompt-ready", "prefill-done", "first-token", "first-paint", "done")


class App:
    """Args:
    markdown: a `MarkdownView`.
    import_module: gives a JavaScript module of this site by its address.
    """

    def __init__(self, markdown, import_module):
        self._markdown = markdown
        options, problems = read_options(_parameters(), _resolve, js.location.origin)
        kept = js.document.documentElement.dataset  # by `early.mjs`, of an earlier visit, if the browser keeps anything
        self._session = Session(options, problems, getattr(kept, "conversation", ""), getattr(kept, "settings", ""))
        self._link = EngineLink(self._receive, self._lost)
        self._sandbox = SandboxLink(import_module, self._link.post)
        self._view = AppView(self)
        self._views = []  # of the messages shown
        self._answer = None  # the view of the answer being written
        self._selected = None  # (place, step) of the branch asked for, until it is shown
        self._thoughts, self._pieces, self._painted = [], [], False
        self._marked = []  # marks that the request has
        self._frame_asked, self._next_frame = False, 0
        # performance.timeOrigin is too wide for an integer on its way into MicroPython, so it comes as JSON.
        self._origin = json.loads(js.JSON.stringify(js.performance))["timeOrigin"]
        self._mark("start", 0)
        self._view.show(self._session)

    async def run(self, script_defined):
        """Wait for the worker, then load the model."""
        await self._link.open(script_defined)
        if self._session.state == "starting":
            self._mark("python-ready")
            self._do(self._session.load())

    # --------------------------------------------------------------------------------------------- wishes of the user

    def send(self, text):
        """Send the composer's text; returns whether it was taken."""
        return self._ask(self._session.send(text, self._now()))

    def edit(self, message, text):
        """Put a question in other words, and ask that."""
        if self._ask(self._session.edit(message, text, self._now())):
            self._view.write_next()

    def regenerate(self, message):
        """Answer again."""
        if self._ask(self._session.regenerate(message, self._now())):
            self._view.write_next()

    def go_on(self, message):
        """Go on with an answer that was cut off."""
        if self._ask(self._session.go_on(message, self._now())):
            self._view.write_next()

    def run_again(self, result):
        """Run the call of a result again."""
        if self._ask(self._session.run_again(result, self._now())):
            self._view.write_next()

    def decide(self, call, allowed):
        """Let a call be run, or not. The buttons go, so the keyboard goes to the next call that waits, or to the composer."""
        request = self._session.decide(call, allowed=allowed)
        self._do(request)
        if request is not None:
            self._update_calls()
            self._focus_waiting()

    def set_system(self, text):
        """Give the conversation another system prompt."""
        self._do(self._session.set_system(text))

    def set_tool(self, name, on):
        """Offer a tool to the model, or do not."""
        self._session.settings.set_tool(name, on)
        self._do(None)

    def set_thinking(self, on):
        """Let the model think, or do not."""
        self._session.settings.set_thinking(on)
        self._do(None)

    def select(self, message, step):
        """Show the branch before or behind that of a message."""
        request = self._session.select(message, step)
        if request is not None:
            self._selected = (self._session.conversation.messages.index(message), step)
        self._do(request)

    def stop(self):
        """End the answer."""
        request = self._session.stop()
        if request is not None:
            self._link.stop_at_once()
            self._update_calls()
        self._do(request)

    def new_chat(self):
        """Begin a new conversation."""
        if self._session.answer_is_running:
            self._link.stop_at_once()
        request = self._session.new_chat()
        self._forget_answer()
        self._show_messages()
        self._do(request)

    def _ask(self, request):
        """Send a request, and show what the session has made of it already; returns whether there is one."""
        if request is not None:
            for name in _ANSWER_MARKS:
                js.performance.clearMarks("tinypylm:" + name)
            self._painted, self._marked = False, []
            self._mark("send")
            self._link.stop_at_once()  # what is computed while nobody waits; the answer takes the word back
            self._show_messages()
        self._do(request)
        return request is not None

    def act(self, action):
        """Do what a notice's button says: retry, reload or dismiss."""
        if action == "reload":
            js.location.reload()
        elif action == "retry":
            self._do(self._session.retry())
        else:
            self._session.dismiss()
            self._do(None)

    async def copy(self, text):
        """Put a text on the clipboard; returns whether the browser allowed it."""
        try:
            await js.navigator.clipboard.writeText(text)
        except Exception as error:  # noqa: BLE001 - browsers refuse in ways of their own
            self._session.remark(f"The browser did not allow copying: {error}")
            self._do(None)
            return False
        return True

    def _do(self, request):
        self._link.post(request)
        self._view.show(self._session)

    # ------------------------------------------------------------------------------------------ messages of the worker

    def _receive(self, message):
        if isinstance(message, (protocol.RunCode, protocol.StopCode)):
            self._sandbox.receive(message)
            return
        answer, request = self._session.conversation.answer, self._session.conversation.request
        first = answer is not None and answer.empty
        status = self._session.status
        self._session.receive(message)
        if isinstance(message, protocol.Shown):
            self._view.following_end(self._show_messages)
            self._focus_selected()
        elif request is not None and getattr(message, "id", 0) == request:
            self._mark_progress(message, first and not answer.empty)
            self._show_progress(message)
        elif isinstance(message, protocol.Ready):
            self._mark("model-ready", message.at)
            asyncio.create_task(_keep_stored())
        if isinstance(message, (protocol.Finished, protocol.Failed)):
            self._end_answer()
        if not isinstance(message, (protocol.Delta, protocol.ReasoningDelta)) or self._session.status != status:
            self._view.show(self._session)

    def _show_progress(self, message):
        if isinstance(message, protocol.Delta):
            self._ask_for_frame(self._pieces, message.text)
        elif isinstance(message, protocol.ReasoningDelta):
            self._ask_for_frame(self._thoughts, message.text)
        elif isinstance(message, protocol.ToolCall):
            self._show_at_once(self._answer.update_calls)
        elif isinstance(message, (protocol.ApprovalNeeded, protocol.ToolStarted, protocol.ToolEnded)):
            self._view.following_end(self._update_calls)
        elif isinstance(message, protocol.Step):
            self._end_answer()
        elif isinstance(message, protocol.Fitted):
            self._show_messages()

    def _mark_progress(self, message, first):
        if first:
            self._mark_once("first-token", message.at)
        if isinstance(message, protocol.PromptReady):
            self._mark_once("prompt-ready", message.at)
        elif isinstance(message, protocol.Prefill) and message.done == message.total:
            self._mark_once("prefill-done", message.at)
        elif isinstance(message, protocol.Finished):
            self._mark_once("done", message.at)

    def _mark_once(self, name, at):
        """Of a request with several answers, the first counts."""
        if name not in self._marked:
            self._marked.append(name)
            self._mark(name, at)

    def _lost(self, error, text):
        self._session.engine_lost(error, text)
        self._end_answer()
        self._view.show(self._session)

    # ----------------------------------------------------------------------------------------------------- the answer

    def _show_messages(self):
        """Show the session's messages; what is shown already is left alone."""
        messages = self._session.conversation.messages
        first = 0
        while first < min(len(self._views), len(messages)) and self._views[first].message is messages[first]:
            first += 1
        old = self._views[first:]
        views = self._views[:first]
        for message in messages[first:]:
            found = [view for view in old if view.message is message]
            views.append(found[0] if found else MessageView(message, self._markdown, self))
        self._views = views
        self._view.place([view.element for view in views], first)
        self._answer = views[-1] if views and views[-1].message.state == "streaming" else None
        for view in views:
            prettified = view.update()
            if prettified is not None:
                asyncio.create_task(self._enhance(prettified))
        self._view.show_left_out(self._session.conversation.left_out)

    def _update_calls(self):
        for view in self._views:
            view.update_calls()

    def _focus_waiting(self):
        """Give the keyboard to the next call that waits for the user, or else to the composer."""
        for view in self._views:
            if view.focus_waiting():
                return
        self._view.focus_composer()

    def _focus_selected(self):
        """The button that selected a branch went with the branch before; the keyboard stays at its place."""
        if self._selected is not None:
            place, step = self._selected
            self._selected = None
            if place < len(self._views):
                self._views[place].focus_branches(step)

    def _ask_for_frame(self, pieces, piece):
        pieces.append(piece)
        if not self._frame_asked:
            self._frame_asked = True
            wait = self._next_frame - js.performance.now()
            if wait > 0:
                js.setTimeout(lambda: js.requestAnimationFrame(self._frame), wait)
            else:
                js.requestAnimationFrame(self._frame)

    def _frame(self, _time):
        self._frame_asked = False
        if self._answer is None or not (self._thoughts or self._pieces):
            return
        thought, piece = "".join(self._thoughts), "".join(self._pieces)
        self._thoughts, self._pieces = [], []
        began = js.performance.now()
        self._view.following_end(lambda: self._answer.stream(thought, piece))
        # A task runs when the frame has been laid out and painted, which may take longer than this.
        js.setTimeout(lambda: self._pause(js.performance.now() - began), 0)
        self._mark_first_paint()

    def _pause(self, took):
        self._next_frame = js.performance.now() + _PAUSE * took

    def _show_at_once(self, change):
        """Show something of the answer that is not waited with until a frame has room for it."""
        self._view.following_end(change)
        js.requestAnimationFrame(lambda _time: self._mark_first_paint())

    def _mark_first_paint(self):
        """Called in a frame that shows something of the answer: if it is the first, its paint is marked."""
        if not self._painted:
            self._painted = True
            # The next frame begins after this one was painted.
            js.requestAnimationFrame(lambda _time: self._mark("first-paint"))

    def _end_answer(self):
        """Show what is left of the answer."""
        ended = self._answer
        self._forget_answer()
        self._view.following_end(self._show_messages)
        if ended in self._views:
            js.requestAnimationFrame(lambda _time: self._mark_first_paint())

    async def _enhance(self, enhancing):
        try:
            await enhancing
        except Exception as error:  # noqa: BLE001 - decoration may fail in any way
            # The answer is whole without colours and formulas; the cause is for developers.
            js.console.warn(f"{type(error).__name__}: {error}")

    def _forget_answer(self):
        self._answer, self._thoughts, self._pieces = None, [], []

    # ----------------------------------------------------------------------------------------------------------- time

    def _now(self):
        return self._origin + js.performance.now()

    def _mark(self, name, at=None):
        """A performance mark, now or at a time of the worker's (milliseconds since the epoch; 0: when the page began)."""
        options = js.Object.new()
        if at is not None:
            options.startTime = max(at - self._origin, 0) if at else 0
        js.performance.mark("tinypylm:" + name, options)


async def _keep_stored():
    """Ask that the browser keep the model when space gets short; if it does not, a later visit fetches it again."""
    storage = getattr(js.navigator, "storage", None)
    if storage:  # not there on addresses that are no secure context
        try:
            await storage.persist()
        except Exception as error:  # noqa: BLE001 - browsers refuse in ways of their own
            js.console.warn(f"{type(error).__name__}: {error}")


def _parameters():
    parameters = {}
    for name, value in js.Object.entries(js.Object.fromEntries(js.URLSearchParams.new(js.location.search))):
        parameters[name] = value
    return parameters


def _resolve(address):
    if not js.URL.canParse(address, js.document.baseURI):
        raise ValueError(address)
    return js.URL.new(address, js.document.baseURI).href
