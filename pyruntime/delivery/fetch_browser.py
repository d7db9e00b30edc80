"""The browser's `fetch` as a Fetcher: streamed, bounded, and never to an origin it was not sent to.

Addresses on the page's own origin are fetched in "same-origin" mode, so the browser itself refuses a redirect that
would leave it. Elsewhere the Content-Security-Policy and a check of the final address do. Bodies are cut into chunks
in the browser's memory as they stream in; nothing is kept in the HTTP cache, since the store keeps it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import js
from pyodide.ffi import JsException, to_js

from pyruntime.delivery.chunk_browser import BrowserChunk
from pyruntime.delivery.download import SourceError
from pyruntime.delivery.memory_browser import release
from pyruntime.delivery.origins import origin_of
from pyruntime.errors import shorten

STALL_SECONDS = 30.0  # a source that sends nothing for so long is given up

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class BrowserFetcher:
    """Fetches from the page's origin and from `allowed_origins`; see `Fetcher` for the two methods."""

    def __init__(
        self, page_url: str, allowed_origins: Collection[str], *, stall_seconds: float = STALL_SECONDS
    ) -> None:
        self._page_origin = origin_of(page_url)
        self._allowed_origins = {self._page_origin, *allowed_origins}
        self._stall_seconds = stall_seconds

    async def fetch_chunks(
        self, url: str, *, file_size: int, offset: int, lengths: Sequence[int], on_bytes: Callable[[int], None]
    ) -> AsyncGenerator[BrowserChunk, None]:
        wanted = sum(lengths)
        partial = wanted < file_size
        headers = {"Range": f"bytes={offset}-{offset + wanted - 1}"} if partial else {}
        async with self._response(url, cache="no-store", headers=headers) as response:
            body = _Body(response, self._stall_seconds)
            # A server that ignores ranges sends the file from its start.
            whole = response.status != 206
            if partial and not whole:
                _check_part(response, offset, wanted, file_size)
            _check_length(response, file_size if whole else wanted)
            await body.skip(offset if whole else 0)
            for number, length in enumerate(lengths, start=1):
                buffer = await body.take(length, on_bytes)
                if number == len(lengths) and offset + wanted == file_size:
                    await body.expect_end()
                yield BrowserChunk(buffer)

    async def fetch_document(self, url: str, *, max_bytes: int) -> bytes:
        parts: list[bytes] = []
        async with self._response(url, cache="no-cache", headers={}) as response:
            body = _Body(response, self._stall_seconds)
            while (piece := await body.next_piece()) is not None:
                parts.append(piece.to_bytes())
                if sum(map(len, parts)) > max_bytes:
                    raise SourceError(f"the answer is longer than {max_bytes} bytes")
        return b"".join(parts)

    @asynccontextmanager
    async def _response(self, url: str, *, cache: str, headers: dict[str, str]) -> AsyncGenerator[Any, None]:
        """The answer of `url`, its body not yet read; what is still in transfer afterwards is aborted."""
        controller = js.AbortController.new()
        options = {
            "mode": "same-origin" if origin_of(url) == self._page_origin else "cors",
            "credentials": "same-origin",
            "referrerPolicy": "no-referrer",
            "cache": cache,
            "headers": headers,
            "signal": controller.signal,
        }
        try:
            response = await _within(
                self._stall_seconds, js.fetch(url, to_js(options, dict_converter=js.Object.fromEntries))
            )
            self._check_answer(response, partial="Range" in headers)
            yield response
        finally:
            controller.abort()

    def _check_answer(self, response: Any, *, partial: bool) -> None:
        """Raise SourceError unless the answer comes from where it may and can be the file."""
        origin = origin_of(response.url)
        if origin not in self._allowed_origins:
            raise SourceError(f"redirected to {origin}, which is not an allowed origin")
        if response.status != 200 and not (partial and response.status == 206):
            raise SourceError(f"the server answered HTTP {response.status}")
        if (response.headers.get("Content-Type") or "").startswith("text/html"):
            raise SourceError("the server answered with a web page (text/html) instead of the file")


class _Body:
    """A response body, taken in portions of the reader's choosing."""

    def __init__(self, response: Any, stall_seconds: float) -> None:
        self._reader = response.body.getReader()
        self._stall_seconds = stall_seconds
        self._rest: Any = None  # what arrived with the last portion and was not asked for

    async def next_piece(self) -> Any:
        """The next bytes as a Uint8Array, as many as there are; None at the end."""
        if self._rest is not None:
            piece, self._rest = self._rest, None
            return piece
        result = await _within(self._stall_seconds, self._reader.read())
        return None if result.done else result.value

    async def take(self, length: int, on_bytes: Callable[[int], None]) -> Any:
        """The next `length` bytes as an ArrayBuffer."""
        target, filled = js.Uint8Array.new(length), 0
        while filled < length:
            piece = await self._piece_of_at_most(length - filled)
            length_of_piece = piece.length
            target.set(piece, filled)
            filled += length_of_piece
            on_bytes(length_of_piece)
            if self._rest is None:
                release(piece.buffer)
        return target.buffer

    async def skip(self, length: int) -> None:
        """Drop the next `length` bytes."""
        while length > 0:
            length -= (await self._piece_of_at_most(length)).length

    async def expect_end(self) -> None:
        """Raise SourceError when more bytes come."""
        while (piece := await self.next_piece()) is not None:
            if piece.length:
                raise SourceError("the file is longer than its manifest says")

    async def _piece_of_at_most(self, length: int) -> Any:
        piece = await self.next_piece()
        if piece is None:
            raise SourceError("the file ended too early")
        if piece.length <= length:
            return piece
        self._rest = piece.subarray(length)
        return piece.subarray(0, length)


async def _within(seconds: float, promise: Any) -> Any:
    """What a JavaScript promise of the network resolves to."""
    try:
        return await asyncio.wait_for(promise, seconds)
    except TimeoutError:
        raise SourceError(f"nothing arrived for {seconds:g} seconds") from None
    except JsException as error:
        raise SourceError(f"the connection failed ({shorten(error.message)})") from error


def _check_part(response: Any, offset: int, wanted: int, file_size: int) -> None:
    """Raise SourceError when a partial answer says that it is another part. Other origins may hide the header."""
    header = response.headers.get("Content-Range")
    match = _CONTENT_RANGE.fullmatch(header or "")
    expected = (str(offset), str(offset + wanted - 1))
    if header and (match is None or match.groups()[:2] != expected or match[3] not in ("*", str(file_size))):
        raise SourceError(f"asked for bytes {'-'.join(expected)} of {file_size}, got {shorten(header)}")


def _check_length(response: Any, expected: int) -> None:
    """Raise SourceError when the announced length is not the one expected. A compressed body's says nothing."""
    length = response.headers.get("Content-Length")
    if length and not response.headers.get("Content-Encoding") and length != str(expected):
        raise SourceError(f"the server offers {length[:20]} bytes, expected {expected}")
