"""The line to the engine worker: messages go out as calls, and come in as they are posted, in bunches (`outbox.py`).

Calls need the worker's Python to be up; posted messages arrive even while it computes. Whatever breaks the line is
told once, in words, to `on_lost`. Knows the wire only through `protocol`.
"""

import js
import protocol


class EngineLink:
    """Args:
    on_message: called with each message of the worker.
    on_lost: called with (class of the error, its text) when the worker cannot be reached.
    """

    def __init__(self, on_message, on_lost):
        self._on_message, self._on_lost = on_message, on_lost
        self._worker = None
        self._stop_word = None  # shared memory, in which 1 ends the worker's computation

    async def open(self, script_defined):
        """Wait until the worker's Python is up.

        Args:
            script_defined: PyScript's promise for the page's first Python script, which is the worker's.
        """
        try:
            worker = (await script_defined).xworker
            worker.addEventListener("message", lambda event: self._hear(event.data))
            worker.addEventListener("error", lambda event: self._lost(RuntimeError(event.message)))
            self._worker = await worker.ready
        except Exception as error:  # noqa: BLE001 - whatever it is, the user is told
            self._lost(error)

    def post(self, message):
        """Send a message; nothing happens for None, so that wishes without effect can be passed on as they are.

        The call is made at once, not by a task: Stop should not wait for its turn.
        """
        if message is not None and self._worker is not None:
            self._worker.sync.handle(protocol.encode(message)).catch(self._call_failed)

    def stop_at_once(self):
        """End what the worker is computing, within milliseconds, where memory is shared; the message must follow."""
        if self._stop_word is not None:
            js.Atomics.store(self._stop_word, 0, 1)

    def _call_failed(self, error):
        self._lost_to(error.name, error.message)

    def _hear(self, data):
        if isinstance(data, str):
            self._receive(data)
        elif js.Object.hasOwn(data, "stopWord"):  # PyScript's own messages are no texts either
            self._stop_word = data.stopWord

    def _receive(self, bunch):
        try:
            messages = protocol.decode_bunch(bunch)
        except protocol.ProtocolError as error:
            self._lost(error)
        else:
            for message in messages:
                self._on_message(message)

    def _lost(self, error):
        name, words = type(error).__name__, str(error)
        if name == "JsException":  # (the JavaScript error, its name, its message)
            _, name, words = error.args
        self._lost_to(name, words)

    def _lost_to(self, name, words):
        self._on_lost(name, f"The engine cannot be reached: {words}. Reload the page to start it again")
