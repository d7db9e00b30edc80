"""Streaming decoder: ids in, text out, whole characters only.

The invariant: the texts of all pushes and of the flush, joined, are `Tokenizer.decode` of the ids. Each push
costs time in proportion to its token's bytes.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable

_new_utf8_decoder = codecs.getincrementaldecoder("utf-8")


class StreamDecoder:
    """Decodes one answer, token by token.

    Bytes wait until a character is complete; bytes that can no longer become one give U+FFFD, one per maximal
    subpart (as WHATWG and Python have it). A control token prints nothing and ends what came before it: bytes
    that still wait give U+FFFD. An id that stands for nothing adds nothing.

    With byte fallback, tokens are texts and some are bytes. Bytes wait until a token comes that is none: in the
    reference they are characters together, or each is U+FFFD.

    Args:
        token_bytes: the bytes of an id's token; b"" for an id that stands for nothing, None for a control token.
        fallback_byte: with byte fallback, whether an id's token is one of the bytes.
        strip_start: a character, and how many of it are taken away at the start of the text.
    """

    def __init__(
        self,
        token_bytes: Callable[[int], bytes | None],
        fallback_byte: Callable[[int], bool] | None = None,
        strip_start: tuple[str, int] = ("", 0),
    ) -> None:
        self._token_bytes = token_bytes
        self._fallback_byte = fallback_byte
        self._strip_start = strip_start
        self._to_strip = strip_start[1]
        self._utf8 = _new_utf8_decoder(errors="replace")
        self._waiting = b""

    def push(self, token_id: int) -> str:
        """The text that `token_id` completes."""
        data = self._token_bytes(token_id)
        if self._fallback_byte is None:
            text = self._utf8.decode(data) if data is not None else self._utf8.decode(b"", final=True)
            return self._stripped(text) if self._to_strip else text
        if data == b"":
            return ""
        if data is not None and self._fallback_byte(token_id):
            self._waiting += data
            return ""
        text = self._take_bytes() + ("" if data is None else data.decode(errors="replace"))
        return self._stripped(text)

    def flush(self) -> str:
        """What still waits, at the end of the answer. The decoder is as new afterwards."""
        text = self._stripped(self._take_bytes() + self._utf8.decode(b"", final=True))
        self._to_strip = self._strip_start[1]
        return text

    def _take_bytes(self) -> str:
        data, self._waiting = self._waiting, b""
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "\ufffd" * len(data)

    def _stripped(self, text: str) -> str:
        """`text` without what is still to be taken away at the start."""
        while self._to_strip and text:
            if text[0] != self._strip_start[0]:
                self._to_strip = 0
                break
            text, self._to_strip = text[1:], self._to_strip - 1
        return text
