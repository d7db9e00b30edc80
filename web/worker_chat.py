"""The worker's conversation: one `Session`, what the page has been told of it, and what is kept of it on the device.

The tree of messages lives here and nowhere else. The page holds the messages shown, and hears of each change: `Shown`
says from which message on something is different. A request that leaves a question without a word of an answer takes it
back: the page has it for its composer, and nothing of it stays.

Nothing here knows browsers; the clock, the posting and the store are passed in.
"""

import asyncio
import uuid
from contextlib import aclosing, suppress

import protocol
from worker_words import described, shown, told

from pyruntime.chat.tree import Tree
from pyruntime.conversation import Options, Session
from pyruntime.conversation.events import MessageAdded
from pyruntime.conversation.states import State, StateChanged
from pyruntime.errors import BusyError, DeliveryError, FormatError, ParameterError
from pyruntime.events import Finished
from pyruntime.sampling import SamplingParams
from pyruntime.tools import ToolRegistry

REQUESTS = (protocol.Send, protocol.Edit, protocol.Regenerate, protocol.Continue, protocol.Retry)
_KEEP_EVERY_MS = 1000  # while an answer is written

_UNKEPT = (DeliveryError, FormatError, ParameterError)  # what keeping a conversation may fail with


class Chat:
    """The conversation of one page.

    Args:
        post: sends a message of the protocol to the page.
        now: milliseconds since the epoch.
        shelf: a `Shelf`, where conversations are kept.
        tools: name → `Tool`, of all that a person may offer to the model.
    """

    def __init__(self, post, now, shelf, tools):
        self._post, self._now, self._shelf, self._tools = post, now, shelf, tools
        self._key = ""  # the conversation's id; empty before `restore`
        self._tree, self._session = Tree(), None  # the tree counts while there is no session
        self._told, self._told_system = [], ""  # the messages that the page shows, and the system prompt
        self._running = self._stopped = None  # ids of requests
        self._is_left = False  # whether another conversation begins when the request has ended
        self._unkept, self._kept, self._keeping, self._kept_at = {}, set(), None, 0.0
        self._foreign = None  # the tree with what another page has added, until there is time to take it in

    async def restore(self, key):
        """Show a conversation of an earlier visit; None: the one that was written last, by whichever page."""
        tree = None
        if not self._key:
            try:
                key = key or await self._shelf.latest()
                tree = await self._shelf.read(key) if key else None
            except _UNKEPT as error:
                self._remark(f"The last conversation cannot be shown. {error}")
                key = None
        if not self._key:  # still
            self._key = key or _new_key()
            if tree is not None:
                self._tree = tree
                self._kept.add(self._key)
        self._show(anew=True)

    def use(self, engine):
        """Answer with this engine; None: with nothing until there is another one."""
        tree = self._present
        self._session = None if engine is None else Session(engine, tree, look_ahead=True)
        self._tree = tree
        if engine is not None:
            self._post(
                protocol.Abilities(
                    [described(tool) for tool in self._tools.values()],
                    engine.can_call,
                    engine.thinks_by_default,
                    self._now(),
                )
            )

    def begin(self, request):
        """Take a request, so that a stop that comes from now on is for it; `run` must follow."""
        if self._running is None:
            self._running = request.id

    async def run(self, request):
        """Answer a request, and tell the page of everything that happens and of the end.

        Raises:
            BusyError: another one is running, or there is no engine yet.
            Exception: whatever the request fails with; the page has been told what is left of it.
        """
        if self._running != request.id:
            raise BusyError("conversation: an answer is being written. Wait for it to finish, or stop it first")
        before, finished = self._present, None
        try:
            if self._session is None:
                raise BusyError("conversation: the model is not there yet. Wait until it is")
            self._forget_told(request)
            self._session.options = self._options(request.settings)
            async with aclosing(self._events(request)) as events:
                async for event in events:
                    if self._stopped == request.id:
                        self._session.cancel()  # the stop may have come before the session had begun
                    if isinstance(event, Finished):
                        finished = told(request.id, event, self._now())
                    elif isinstance(event, StateChanged):
                        if self._step(request.id, event):
                            finished = None  # it was of an answer that is not the last
                    else:
                        self._tell(request.id, event)
                    self._keep(at_once=isinstance(event, MessageAdded))
        finally:
            self._end(before)
        # Stopped before the engine had begun, there is nothing of it to tell.
        self._post(finished or protocol.Finished(request.id, "cancelled", "", "", 0, 0, 0, 0, None, None, self._now()))

    def cancel(self, request_id):
        """Stop a request; nothing happens if another one is running."""
        if request_id == self._running:
            self._stopped = request_id
            if self._session is not None:
                self._session.cancel()

    def decide(self, request_id, call, *, allowed):
        """Let a call of a request be run, or not; nothing happens if it does not wait for that (any more)."""
        if request_id == self._running and self._session is not None:
            with suppress(ParameterError):
                (self._session.approve if allowed else self._session.deny)(call)

    def set_system(self, text):
        """Give the conversation another system prompt; nothing happens while an answer is written."""
        if self._running is None and self._key:
            self._put(self._present.with_system(text or None))
            self._show()
            self._keep(at_once=True)

    def select(self, message):
        """Show the branch that a message is on; nothing happens while an answer is written, or if there is no such message."""
        if self._running is None and message in self._present.nodes:
            self._put(self._present.select(message))
            self._show()
            self._keep(at_once=True)

    def new_chat(self):
        """Begin another conversation; what is being answered in this one is stopped first."""
        if self._running is None:
            self._leave()
        else:
            self._is_left = True
            self.cancel(self._running)

    # ------------------------------------------------------------------------------------------------------- the tree

    @property
    def _present(self):
        return self._session.tree if self._session else self._tree

    def _put(self, tree):
        if self._session:
            self._session.change(tree)
        self._tree = tree

    def _options(self, settings):
        unknown = [name for name in settings["tools"] if name not in self._tools]
        if unknown:
            raise ParameterError("tools", unknown[0], ", ".join(self._tools) or "none")
        tools = ToolRegistry([self._tools[name] for name in settings["tools"]])
        thinking = settings["thinking"]
        told = {} if thinking is None else {"enable_thinking": thinking}
        return Options(SamplingParams(**settings["sampling"]), tools, told)

    def _events(self, request):
        session = self._session
        if isinstance(request, protocol.Send):
            return session.send(request.text)
        if isinstance(request, protocol.Edit):
            return session.edit(request.message, request.text)
        if isinstance(request, protocol.Regenerate):
            return session.regenerate(request.message)
        if isinstance(request, protocol.Retry):
            return session.retry(request.message)
        return session.continue_answer(request.message)

    def _end(self, before):
        """The request has ended: take a question without an answer back, and show what there is."""
        self._running = None
        tree = self._present
        if self._is_left:
            self._leave()
            return
        if tree.leaf is not None and tree.leaf.role == "user" and tree.leaf.id not in before.nodes:
            self._put(before)
        self._keep(at_once=True)
        self._take_in()
        self._show()

    def _leave(self):
        self._is_left = False
        self._keep(at_once=True)
        self._key, self._foreign = _new_key(), None
        self._put(Tree())
        self._show(anew=True)

    # ------------------------------------------------------------------------------------------------ telling the page

    def _tell(self, request_id, event):
        if isinstance(event, MessageAdded):
            if not self._is_left:
                self._show()
        else:
            message = told(request_id, event, self._now())
            if message is not None:
                self._post(message)

    def _step(self, request_id, change):
        """Tell the page that calls are run now, or that the model goes on behind them; whether that is what has changed."""
        before, now = change.before, change.now
        if now == State.TOOL_CALL or (before, now) == (State.TOOL_CALL, State.PREFILL):
            to = "tools" if now == State.TOOL_CALL else "answer"
            self._post(protocol.Step(request_id, to, self._now()))
            return True
        return False

    def _show(self, *, anew=False):
        """Tell the page which messages are shown, and the system prompt, if that has changed or all is `anew`."""
        tree = self._present
        if (tree.system or "") != self._told_system:
            self._told_system = tree.system or ""
            self._post(protocol.System(self._told_system, self._now()))
        messages = [shown(tree, node) for node in tree.path]
        first = 0
        while first < min(len(messages), len(self._told)) and messages[first] == self._told[first]:
            first += 1
        if anew or first < max(len(messages), len(self._told)):
            first = 0 if anew else first
            self._told = messages
            self._post(protocol.Shown(self._key, first, messages[first:], self._now()))

    def _forget_told(self, request):
        """The page takes away what is to be replaced as soon as it asks for that."""
        places = [message["id"] for message in self._told]
        if getattr(request, "message", None) in places:
            del self._told[places.index(request.message) :]

    def _remark(self, text):
        self._post(protocol.Remark(text, self._now()))

    # --------------------------------------------------------------------------------------------------------- keeping

    def _keep(self, *, at_once):
        """Write the conversation as it is now, soon; while an answer is written, not too often."""
        now = self._now()
        if not at_once and now - self._kept_at < _KEEP_EVERY_MS:
            return
        tree = self._session.snapshot() if self._session else self._tree
        if not tree.nodes and tree.system is None and self._key not in self._kept:
            return  # an empty conversation is none
        self._kept_at = now
        self._kept.add(self._key)
        self._unkept[self._key] = tree
        if self._keeping is None:
            self._keeping = asyncio.ensure_future(self._write())

    async def _write(self):
        while self._unkept:
            key, tree = self._unkept.popitem()
            try:
                joined = await self._shelf.write(key, tree)
            except _UNKEPT as error:
                self._remark(f"This conversation is not kept on the device. {error}")
                continue
            if joined is not tree and key == self._key:
                self._foreign = joined
                if self._running is None:
                    self._take_in()
                    self._show()
        self._keeping = None

    def _take_in(self):
        """Take in what another page has added to this conversation."""
        if self._foreign is not None:
            self._put(self._present.merge(self._foreign))
            self._foreign = None


def _new_key():
    return uuid.uuid4().hex
