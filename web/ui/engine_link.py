"""The line to the engine worker: messages go out as calls, and come in as they are posted, in bunches (`bunches.mjs`).

Calls need the worker's Python to be up; posted messages arrive even while it computes. Whatever breaks the line is
told once, in words, to `on_lost`. Knows the wire only through `protocol`.
"""

import protocol

_GAP_MS = 80  # twelve times a second, text still seems to flow


class EngineLink:
    """Args:
    listen: the function of `bunches.mjs`.
    on_message: called with each message of the worker.
    on_lost: called with (class of the error, its text) when the worker cannot be reached.
    """

    def __init__(self, listen, on_message, on_lost):
        self._listen, self._on_message, self._on_lost = listen, on_message, on_lost
        self._worker = None
        self._computation = None

    async def open(self, script_defined):
        """Wait until the worker's Python is up.

        Args:
            script_defined: PyScript's promise for the page's first Python script, which is the worker's.
        """
        try:
            worker = (await script_defined).xworker
            self._computation = self._listen(worker, self._receive, _GAP_MS)
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
        if self._computation is not None:
            self._computation.stop()

    def _call_failed(self, error):
        self._lost_to(error.name, error.message)

    def _receive(self, texts):
        try:
            messages = protocol.decode_all(texts)
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
