"""The engine worker: opens the model the page asks for, and hands all else to the conversation (`worker_chat.py`).

The page calls `handle` with one message at a time; what happens is posted back as it happens. Posted messages reach the
page even while Python computes; calls of the page reach Python between two tokens, which is how Stop gets through. An
exception becomes a `Failed` message in the error's own words; the traceback goes to the console.
"""

import asyncio
import traceback
from contextlib import ExitStack
from datetime import datetime

import js
import protocol
from outbox import Outbox
from pyodide.code import run_js
from pyscript import sync

_PROGRESS_INTERVAL_MS = 50

_origin, _elapsed = js.performance.timeOrigin, js.performance.now

# Shared memory cannot be written down in a text: the one message of another kind.
_post_stop_word = run_js("(word) => postMessage({ stopWord: word ?? null })")


def _remark(text):
    _post(protocol.Remark(text, _now()))


def _wait(stage, text):
    _post(protocol.Waiting(stage, text, _now()))


def _post_failure(subject, error):
    js.console.warn("".join(traceback.format_exception(error)))
    _post(protocol.Failed(subject, type(error).__name__, str(error), _now()))


def _now():
    """Milliseconds since the epoch, on the clock that the page's performance marks use."""
    return _origin + _elapsed()


def _later(milliseconds, act):
    asyncio.get_running_loop().call_later(milliseconds / 1000, act)


_post = Outbox(run_js("(text) => postMessage(text)"), _elapsed, _later).post

try:
    from worker_chat import REQUESTS, Chat
    from worker_python import CodeRuns

    from pyruntime.conversation.shelf import Shelf
    from pyruntime.conversation.shelf_browser import IndexedDBTexts
    from pyruntime.delivery.fetch_browser import BrowserFetcher
    from pyruntime.delivery.locks_browser import browser_locks
    from pyruntime.delivery.obtain_browser import obtain_model
    from pyruntime.engine import Engine
    from pyruntime.memory_share import MemoryShare
    from pyruntime.tables_cache import StoredTables
    from pyruntime.tools.calculator import calculator_tool
    from pyruntime.tools.clock import current_time_tool
    from pyruntime.tools.python import python_tool
except Exception as error:
    # A package that did not arrive: PyScript would tell the console only.
    _post_failure(0, error)
    raise


def _local_time():
    return datetime.now().astimezone()


_code_runs = CodeRuns(_post)

# All that a person may offer to the model.
TOOLS = {tool.name: tool for tool in (calculator_tool(), current_time_tool(_local_time), python_tool(_code_runs.run))}


class Worker:
    """Answers the page's messages with the engine it was told to load."""

    def __init__(self):
        self._engine = None
        self._share = MemoryShare(browser_locks(), getattr(js.navigator, "deviceMemory", None))
        self._chat = Chat(_post, _now, Shelf(IndexedDBTexts()), TOOLS)

    def handle(self, text):
        """Do what one message of the page says; returns what is still going on as an awaitable, or None.

        What takes no time is done in this call, in the order in which the page says it. As a task, Stop would wait for its
        turn behind the next token.
        """
        message = protocol.decode(text)
        if isinstance(message, protocol.Cancel):
            return self._chat.cancel(message.id)
        if isinstance(message, (protocol.Approve, protocol.Deny)):
            return self._chat.decide(message.id, message.call, allowed=isinstance(message, protocol.Approve))
        if isinstance(message, protocol.SetSystem):
            return self._chat.set_system(message.text)
        if isinstance(message, protocol.Select):
            return self._chat.select(message.message)
        if isinstance(message, protocol.NewChat):
            return self._chat.new_chat()
        if isinstance(message, protocol.CodeRan):
            return _code_runs.ran(message)
        if isinstance(message, REQUESTS):
            self._chat.begin(message)
        return asyncio.ensure_future(self._run(message))

    async def _run(self, message):
        subject = getattr(message, "id", 0)
        try:
            if isinstance(message, protocol.Load):
                await self._load(message)
            elif isinstance(message, REQUESTS):
                await self._chat.run(message)
            else:
                raise protocol.ProtocolError(f"{type(message).__name__}: not a message to the worker")
        except Exception as error:  # noqa: BLE001 - whatever it is, the page is told
            _post_failure(subject, error)

    async def _load(self, request):
        self._forget_engine()
        await self._chat.restore(request.conversation)
        model = await obtain_model(
            request.manifest,
            page_url=request.page,
            on_progress=_progress("fetch", "the model"),
            on_notice=_remark,
            on_wait=lambda: _wait("fetch", "Another tab is fetching the model. This one goes on when it is there"),
        )
        title = model.manifest.title
        # What an earlier visit stored is hashed by the browser while Python reads it.
        verification = asyncio.ensure_future(model.verify())
        with ExitStack() as on_failure:
            on_failure.callback(self._forget_engine)
            try:
                self._engine = await Engine.load(
                    model.model_files(),
                    executor=request.executor,
                    context=request.context,
                    threads=request.threads,
                    on_progress=_progress("open", title),
                    on_notice=_remark,
                    tables=StoredTables(
                        model.store,
                        BrowserFetcher(request.page, ()),
                        site=request.page,
                        source_sha256=model.manifest.tokenizer_file().sha256,
                    ),
                    admit=lambda needed: self._share.take(needed, lambda shortage: _wait("open", str(shortage))),
                )
                self._engine.check_can_chat()
            finally:
                # Damage explains whatever else went wrong, and the next attempt heals it.
                await verification
            on_failure.pop_all()
        self._chat.use(self._engine)
        _post_stop_word(self._engine.stop_word())
        _post(protocol.Ready(title, _computing(self._engine), self._engine.context, _now()))
        await self._engine.warm_up()

    def _forget_engine(self):
        """Its memory and its threads must be free before another model takes as much."""
        self._chat.use(None)
        if self._engine is not None:
            self._engine.close()
        self._engine = None
        self._share.release()


def _computing(engine):
    """What computes, and which weights it does not keep as the file has them: "wasm, Q5_K and Q6_K weights in 8 bits"."""
    types = " and ".join(engine.in_8_bits)
    return f"{engine.executor_name}, {types} weights in 8 bits" if types else engine.executor_name


def _progress(stage, name):
    """A progress callback that posts at most every 50 ms, and always the end."""
    last = float("-inf")

    def report(done, total):
        nonlocal last
        now = _now()
        if done == total or now - last >= _PROGRESS_INTERVAL_MS:
            last = now
            _post(protocol.Progress(stage, name, done, total, now))

    return report


sync.handle = Worker().handle
