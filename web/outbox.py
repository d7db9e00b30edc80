"""What the worker says to the page, posted in bunches: a bunch is one JSON list of messages.

Each message that is posted wakes the page's thread, which puts a thread that computes aside: hundreds of times a second, if
each word were a message. So words wait until the last bunch of words is `GAP_MS` old, unless the next would come
later than that; whatever else is said goes out at once, with the words before it. Pure: clock, timer and post are passed in.
"""

import protocol

GAP_MS = 80  # twelve times a second, text still seems to flow
_WORDS = (protocol.Delta, protocol.ReasoningDelta)


class Outbox:
    """Args:
    send: posts a text.
    now: milliseconds.
    later: calls a function after so many milliseconds.
    """

    def __init__(self, send, now, later):
        self._send, self._now, self._later = send, now, later
        self._waiting, self._has_timer = [], False
        self._word_at = self._words_sent_at = float("-inf")

    def post(self, message):
        """Post a message, now or with the next ones."""
        self._waiting.append(protocol.encode(message))
        if not isinstance(message, _WORDS):
            self._send_all()
            return
        now = self._now()
        expected, self._word_at = now + (now - self._word_at), now
        due = self._words_sent_at + GAP_MS
        # Nothing can be posted while the next word is computed: what would be late by then goes at once.
        if expected > due:
            self._words_sent_at = now
            self._send_all()
        elif not self._has_timer:
            self._has_timer = True  # more words may not come: a tool is called, a stop string holds them back
            self._later(due - now, self._send_late)

    def _send_late(self):
        self._has_timer = False
        if self._waiting:
            self._words_sent_at = self._now()
            self._send_all()

    def _send_all(self):
        texts, self._waiting = self._waiting, []
        self._send(f"[{','.join(texts)}]")
