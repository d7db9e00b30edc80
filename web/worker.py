"""The engine worker: binds an `Engine` to the messages of `protocol`, and nothing else.

The page calls `handle` with one message at a time; what happens is posted back as it happens. Posted messages reach the
page even while Python computes; calls of the page reach Python between two tokens, which is how Stop gets through. An
exception becomes a `Failed` message in the error's own words; the traceback goes to the console.
"""

import asyncio
import json
import traceback

import js
import protocol
from pyodide.code import run_js
from pyscript import sync

_PROGRESS_INTERVAL_MS = 50

_origin, _elapsed = js.performance.timeOrigin, js.performance.now

_post_text = run_js("(text) => postMessage(text)")
# Shared memory cannot be written down in a text: the one message of another kind.
_post_stop_word = run_js("(word) => postMessage({ stopWord: word ?? null })")


def _post(message):
    _post_text(protocol.encode(message))


def _remark(text):
    _post(protocol.Remark(text, _now()))


def _post_failure(subject, error):
    js.console.warn("".join(traceback.format_exception(error)))
    _post(protocol.Failed(subject, type(error).__name__, str(error), _now()))


def _now():
    """Milliseconds since the epoch, on the clock that the page's performance marks use."""
    return _origin + _elapsed()


try:
    from pyruntime.delivery.fetch_browser import BrowserFetcher
    from pyruntime.delivery.obtain_browser import obtain_model
    from pyruntime.engine import Engine
    from pyruntime.events import (
        CallInvalid,
        CallReady,
        Delta,
        Finished,
        PrefillProgress,
        PromptReady,
        ReasoningDelta,
    )
    from pyruntime.sampling import SamplingParams
    from pyruntime.tables_cache import StoredTables
except Exception as error:
    # A package that did not arrive: PyScript would tell the console only.
    _post_failure(0, error)
    raise


class Worker:
    """Answers the page's messages with the engine it was told to load."""

    def __init__(self):
        self._engine = None
        self._answering = None  # id of the answer asked for or being written
        self._is_stopped = False  # whether the user wants that answer to end

    def handle(self, text):
        """Do what one message of the page says; returns what is still going on as an awaitable, or None.

        Stop takes effect in this call: as a task it would wait for its turn behind the next token.
        """
        message = protocol.decode(text)
        if isinstance(message, protocol.Cancel):
            return self._cancel(message)
        if isinstance(message, protocol.Chat):
            self._answering, self._is_stopped = message.id, False
        return asyncio.ensure_future(self._run(message))

    async def _run(self, message):
        subject = getattr(message, "id", 0)
        try:
            if isinstance(message, protocol.Load):
                await self._load(message)
            elif isinstance(message, protocol.Chat):
                await self._chat(message)
            else:
                raise protocol.ProtocolError(f"{type(message).__name__}: not a message to the worker")
        except Exception as error:  # noqa: BLE001 - whatever it is, the page is told
            _post_failure(subject, error)

    async def _load(self, request):
        self._engine = None
        model = await obtain_model(
            request.manifest,
            page_url=request.page,
            on_progress=_progress("fetch", "the model"),
            on_notice=_remark,
        )
        title = model.manifest.title
        # What an earlier visit stored is hashed by the browser while Python reads it.
        verification = asyncio.ensure_future(model.verify())
        try:
            engine = await Engine.load(
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
            )
            engine.check_can_chat()
        finally:
            # Damage explains whatever else went wrong, and the next attempt heals it.
            await verification
        self._engine = engine
        _post_stop_word(engine.stop_word())
        _post(protocol.Ready(title, _computing(engine), engine.context, _now()))
        await engine.warm_up()

    async def _chat(self, request):
        try:
            async for event in self._engine.chat(request.messages, SamplingParams(**request.sampling)):
                if self._is_stopped:
                    # Stop may have come before the engine had begun.
                    self._engine.cancel()
                _post(_told(request.id, event))
        finally:
            self._answering = None

    def _cancel(self, request):
        if request.id == self._answering:
            self._is_stopped = True
            self._engine.cancel()


def _computing(engine):
    """What computes, and which weights it does not keep as the file has them: "wasm, Q5_K and Q6_K weights in 8 bits"."""
    types = " and ".join(engine.in_8_bits)
    return f"{engine.executor_name}, {types} weights in 8 bits" if types else engine.executor_name


def _told(answer, event):
    """The message that tells the page of an event of this answer."""
    if isinstance(event, Delta):
        return protocol.Delta(answer, event.text, _now())
    if isinstance(event, ReasoningDelta):
        return protocol.ReasoningDelta(answer, event.text, _now())
    if isinstance(event, CallReady):
        arguments = json.dumps(event.call.arguments, indent=2, ensure_ascii=False)
        return protocol.ToolCall(answer, event.call.name, arguments, None, event.call.raw, _now())
    if isinstance(event, CallInvalid):
        return protocol.ToolCall(answer, None, None, event.call.problem, event.call.raw, _now())
    if isinstance(event, PrefillProgress):
        return protocol.Prefill(answer, event.done, event.total, _now())
    if isinstance(event, PromptReady):
        return protocol.PromptReady(answer, event.prompt_tokens, event.cached_tokens, _now())
    if isinstance(event, Finished):
        usage, timings = event.usage, event.timings
        return protocol.Finished(
            answer,
            event.reason,
            event.text,
            event.reasoning,
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.new_tokens,
            timings.prefill_tps,
            timings.decode_tps,
            _now(),
        )
    raise TypeError(f"{type(event).__name__}: the page has no message for this event")


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
