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

    Args:
        token_bytes: the bytes of an id's token; b"" for an id that stands for nothing, None for a control token.
    """

    def __init__(self, token_bytes: Callable[[int], bytes | None]) -> None:
        self._token_bytes = token_bytes
        self._utf8 = _new_utf8_decoder(errors="replace")

    def push(self, token_id: int) -> str:
        """The text that `token_id` completes."""
        data = self._token_bytes(token_id)
        return self.flush() if data is None else self._utf8.decode(data)

    def flush(self) -> str:
        """What still waits, at the end of the answer. The decoder is as new afterwards."""
        return self._utf8.decode(b"", final=True)
