"""Stand-ins for the network and for time: a scripted fetcher, a store that yields, and a scheduler for interleavings."""

from __future__ import annotations

import hashlib

from pyruntime.delivery.download import SourceError
from pyruntime.delivery.manifest import Manifest, ManifestFile
from pyruntime.delivery.store import BytesChunk, MemoryStore

BASE = "https://page.example/seed/tiny.json"
PAGE = "https://page.example/"
ORIGINS = {"https://page.example"}


def file_of(data, *, path="tiny.gguf", chunk_size=10, sources=("a", "b")):
    """The manifest entry of bytes; the chunks are small so that a few bytes make many."""
    chunks = [data[start : start + chunk_size] for start in range(0, len(data), chunk_size)]
    digests = tuple(hashlib.sha256(chunk).hexdigest() for chunk in chunks)
    return ManifestFile(path, len(data), hashlib.sha256(data).hexdigest(), chunk_size, digests, tuple(sources))


def manifest_of(*files):
    return Manifest("tiny", "Tiny", "Apache-2.0", "1", files)


class Pause:
    """Awaiting it hands control to whoever drives the coroutine: `interleave` or an event loop."""

    def __await__(self):
        yield


class Network:
    """A fetcher over a table of addresses.

    `answers` maps an address to bytes, or to a list of what it answers from request to request (the last one stays).
    An answer is bytes (the file, right or wrong), a SourceError to raise at once, or (bytes, n, SourceError): n chunks
    of it, then the error. `asked` collects (address, offset, bytes asked for); `delivered` counts bytes handed out, `open` the transfers begun
    and not ended, `most_open` the most there ever were.
    """

    def __init__(self, answers):
        self._answers = {url: list(answer) if isinstance(answer, list) else answer for url, answer in answers.items()}
        self.asked = []
        self.delivered = self.open = self.most_open = 0

    async def fetch_chunks(self, url, *, file_size, offset, lengths, on_bytes):
        self.asked.append((url, offset, sum(lengths)))
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        try:
            data, good, error = self._answer(url)
            for number, length in enumerate(lengths):
                await Pause()
                if number == good:
                    on_bytes(length // 2)
                    raise error
                chunk = data[offset : offset + length]
                on_bytes(len(chunk))
                if len(chunk) < length:
                    raise SourceError("the file ended too early")
                self.delivered += length
                yield BytesChunk(chunk)
                offset += length
        finally:
            self.open -= 1

    async def fetch_document(self, url, *, max_bytes):
        self.asked.append((url, 0, None))
        await Pause()
        data, good, error = self._answer(url)
        if good == 0:
            raise error
        return data

    def _answer(self, url):
        answer = self._answers.get(url, SourceError("HTTP 404"))
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, bytes):
            return answer, None, None
        if isinstance(answer, SourceError):
            return b"", 0, answer
        return answer


class PausingStore:
    """A MemoryStore whose every operation can be overtaken: it yields before and after."""

    def __init__(self, store=None):
        self.inside = store or MemoryStore()

    def __getattr__(self, name):
        method = getattr(self.inside, name)

        async def paused(*args):
            await Pause()
            result = await method(*args)
            await Pause()
            return result

        return paused


def run(coroutine):
    """The result of a coroutine that only waits for `Pause`."""
    return interleave([coroutine], lambda count: 0)[0]


def interleave(coroutines, choose):
    """Step coroutines in the order `choose(how many are left)` says; their results, exceptions included."""
    results = [None] * len(coroutines)
    left = dict(enumerate(coroutines))
    while left:
        number = sorted(left)[choose(len(left))]
        try:
            left[number].send(None)
        except StopIteration as stop:
            results[number] = stop.value
            del left[number]
        except Exception as error:
            if len(coroutines) == 1:
                raise
            results[number] = error
            del left[number]
    return results
