"""Downloading a model: from the sources a manifest names into a store, with every byte checked.

The rules, whatever the network does:

- A chunk is stored only after its SHA-256 matched; a file is committed only after the whole file's did.
- What an earlier attempt stored is not fetched again. It is hashed again, so damage on the device heals itself.
- When a source fails, the next one goes on from the chunk that is missing; after the last comes the first again.
  The download gives up, with every source's reason, when all of them in a row failed to deliver one good chunk.
- Stopping at any moment (cancellation, a closed tab) leaves verified chunks and nothing else.

Where nobody holds them apart, several downloads of the same file may run at once: they put the same verified chunks and commit the same fact.
It does not know HTTP or any kind of storage; those are behind `Fetcher` and `Store`. Rates and times are left to
the caller, who has a clock.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass
from typing import Protocol

from pyruntime.delivery.manifest import Manifest, ManifestFile
from pyruntime.delivery.origins import resolve
from pyruntime.delivery.store import Chunk, Store
from pyruntime.errors import DeliveryError, FormatError, compose, shorten
from pyruntime.formats.model_files import ModelFiles
from pyruntime.formats.source import ByteSource

OnProgress = Callable[[int, int], None]
# What only one holder of a name does at a time: a context manager for a name.
Hold = Callable[[str], AbstractAsyncContextManager[None]]


class SourceError(DeliveryError):
    """A source did not deliver what it should have; another one may. `str(error)` is the reason."""


class Fetcher(Protocol):
    """Gets bytes from an address. Both methods raise SourceError when the address does not deliver them."""

    def fetch_chunks(
        self, url: str, *, file_size: int, offset: int, lengths: Sequence[int], on_bytes: Callable[[int], None]
    ) -> AsyncGenerator[Chunk, None]:
        """The bytes from `offset` on, as consecutive chunks of exactly `lengths` bytes.

        `file_size` is what the whole file must measure; `on_bytes` is told of bytes as they arrive. Closing the
        generator ends the transfer.
        """

    async def fetch_document(self, url: str, *, max_bytes: int) -> bytes:
        """The whole answer, which may be at most `max_bytes` long."""


@dataclass(frozen=True)
class StoredModel:
    """A model whose files are all on this device.

    Attributes:
        manifest: what it was fetched by.
        files: a manifest's path → the file's bytes.
        store: where they are kept.
        unverified: the files that an earlier visit stored, whose bytes have not been hashed since.
    """

    manifest: Manifest
    files: Mapping[str, ByteSource]
    store: Store
    unverified: tuple[ManifestFile, ...]

    def model_files(self) -> ModelFiles:
        """The files as the engine takes them."""
        return ModelFiles(self.manifest.name, self.files)

    async def verify(self) -> None:
        """Hash what an earlier visit stored, which may be done while it is read.

        Raises:
            DeliveryError: a chunk is damaged. None of the damaged files is counted as present any more, so the next
                attempt fetches the damaged chunks and nothing else.
        """
        damaged = [(file, index) for file in self.unverified if (index := await self._damaged_chunk(file)) is not None]
        for file, _ in damaged:
            await self.store.doubt(file.sha256)
        if damaged:
            names = ", ".join(file.name for file, _ in damaged)
            copies = "the stored copy is" if len(damaged) == 1 else "the stored copies are"
            problem = f"{copies} damaged ({', '.join(f'chunk {index}' for _, index in damaged)})"
            raise DeliveryError(compose(names, problem, advice="Try again to fetch what is damaged"))

    async def _damaged_chunk(self, file: ManifestFile) -> int | None:
        """The index of the first chunk of a file that is not what it should be."""
        for index, expected in enumerate(file.chunk_sha256):
            chunk = await self.store.get_chunk(file.sha256, index)
            if chunk is None or await chunk.sha256() != expected:
                return index
            chunk.release()
        return None


async def fetch_model(
    manifest: Manifest,
    store: Store,
    fetcher: Fetcher,
    *,
    base_url: str,
    allowed_origins: Collection[str],
    on_progress: OnProgress | None = None,
    hold: Hold = lambda name: nullcontext(),
) -> StoredModel:
    """Make every file of `manifest` present in `store`, fetching only what is missing.

    Args:
        manifest: what to fetch.
        store: where it is kept.
        fetcher: how it is fetched.
        base_url: the manifest's own address, which relative sources refer to.
        allowed_origins: sources elsewhere are refused without being asked.
        on_progress: called with (bytes present or arrived, bytes of all files). The first number steps back by less
            than a chunk when a source fails in the middle of one.
        hold: as `Hold`; held around each file, so that tabs do not fetch the same one side by side.

    Raises:
        DeliveryError: when no source delivers, when the device has not enough room, or cannot store.
        FormatError: when the manifest contradicts itself, or a file that was verified before.
    """
    job = _Job(manifest.name, store, fetcher, base_url, allowed_origins, _Progress(manifest.size, on_progress))
    files = {file.path: await store.open(file) for file in manifest.files}
    missing = [file for file in manifest.files if files[file.path] is None]
    await _check_space([await _missing_bytes(file, job) for file in missing], store)
    job.progress.add(manifest.size - sum(file.size for file in missing))
    for file in missing:
        async with hold(f"file {file.sha256}"):
            files[file.path] = await store.open(file)
            if files[file.path] is None:
                await _FileDownload(file, job).run()
                files[file.path] = await store.open(file)
            else:  # another tab has fetched and checked it meanwhile
                job.progress.add(file.size)
    stored_before = tuple(file for file in manifest.files if file not in missing)
    return StoredModel(manifest, {path: _require(source, path) for path, source in files.items()}, store, stored_before)


def _require(source: ByteSource | None, path: str) -> ByteSource:
    if source is None:  # committed a moment ago
        raise DeliveryError(compose(path, "deleted by another tab while it was downloaded", advice="Reload"))
    return source


@dataclass(frozen=True)
class _Job:
    """What the downloads of one model share."""

    manifest_name: str
    store: Store
    fetcher: Fetcher
    base_url: str
    allowed_origins: Collection[str]
    progress: _Progress


async def _missing_bytes(file: ManifestFile, job: _Job) -> int:
    """Bytes of the chunks of `file` that are not held; FormatError when they can never make it whole."""
    committed = await job.store.committed(file.sha256)
    if committed not in (None, file.chunk_sha256):
        # Fetching these chunks would only destroy the good copy.
        raise FormatError(
            job.manifest_name, f"{file.path}: chunk_sha256", "differs from that of the verified file with this sha256"
        )
    held = await _held_chunks(file, job.store)
    return file.size - sum(file.chunk_length(index) for index in held)


async def _held_chunks(file: ManifestFile, store: Store) -> set[int]:
    """The indices of the chunks of `file` that an earlier download left in the store."""
    held = await store.chunks(file.sha256)
    return {index for index, digest in enumerate(file.chunk_sha256) if held.get(index) == digest}


async def _check_space(missing: Sequence[int], store: Store) -> None:
    needed = sum(missing)
    space = await store.space() if needed else None
    if space is not None and needed > space.quota - space.used:
        raise DeliveryError(
            compose(
                "storage",
                f"the model needs {_mb(needed)} more and this device offers {_mb(max(0, space.quota - space.used))} "
                f"({_mb(space.used)} of {_mb(space.quota)} used)",
                advice="Delete stored models or free disk space, and reload",
            )
        )


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


class _Progress:
    """Bytes present over all files, and those of the chunk that is arriving."""

    def __init__(self, total: int, report: OnProgress | None) -> None:
        self._total, self._report = total, report or (lambda done, total: None)
        self._present = self._arriving = 0

    def add(self, size: int) -> None:
        """`size` more bytes are present; what was arriving is settled."""
        self._present, self._arriving = self._present + size, 0
        self._report(self._present, self._total)

    def arrive(self, size: int) -> None:
        """`size` more bytes arrived, and may yet be refused."""
        self._arriving += size
        self._report(min(self._present + self._arriving, self._total), self._total)

    def drop(self) -> None:
        """What was arriving is refused."""
        self.add(0)


class _FileDownload:
    """One file on its way into the store, chunk by chunk in order."""

    def __init__(self, file: ManifestFile, job: _Job) -> None:
        self._file, self._job = file, job
        self._next = 0  # chunks before this one are stored and counted in
        self._whole = hashlib.sha256()
        self._turn = 0  # the source in use is sources[turn % len(sources)]

    async def run(self) -> None:
        """Fetch what is missing, check the whole, commit."""
        file, store = self._file, self._job.store
        held, count = await _held_chunks(file, store), len(file.chunk_sha256)
        while self._next < count:
            if self._next not in held or not await self._take_stored():
                await self._fetch_until(next((i for i in range(self._next + 1, count) if i in held), count))
        found = self._whole.hexdigest()
        if found != file.sha256:
            await store.delete(file.sha256)
            raise FormatError(
                self._job.manifest_name,
                f"{file.path}: sha256",
                f"every chunk matches, but the whole file has SHA-256 {found}, not {file.sha256}; nothing is kept",
            )
        await store.commit(file)

    async def _take_stored(self) -> bool:
        """Count the next chunk in as it is stored, unless it has changed or gone since."""
        chunk = await self._job.store.get_chunk(self._file.sha256, self._next)
        if chunk is None or await chunk.sha256() != self._file.chunk_sha256[self._next]:
            return False
        self._count_in(chunk)
        return True

    async def _fetch_until(self, stop: int) -> None:
        """Fetch the chunks before `stop`, from as many sources as it takes."""
        sources = self._file.sources
        failures: list[tuple[str, SourceError]] = []  # since the last good chunk
        fruitless = 0
        while self._next < stop:
            source, before = sources[self._turn % len(sources)], self._next
            try:
                await self._fetch_from(source, stop)
            except SourceError as error:
                self._job.progress.drop()
                fruitless += 1
                if self._next > before:
                    failures, fruitless = [], 0
                failures.append((source, error))
                if fruitless == len(sources):
                    raise self._nothing_delivered(failures) from error
                self._turn += 1

    async def _fetch_from(self, source: str, stop: int) -> None:
        """Fetch the chunks before `stop` from one source."""
        file, job = self._file, self._job
        try:
            url = resolve(source, job.base_url, job.allowed_origins)
        except DeliveryError as error:
            raise SourceError(str(error)) from error
        chunks = job.fetcher.fetch_chunks(
            url,
            file_size=file.size,
            offset=self._next * file.chunk_size,
            lengths=[file.chunk_length(index) for index in range(self._next, stop)],
            on_bytes=job.progress.arrive,
        )
        async with aclosing(chunks):
            async for chunk in chunks:
                found, expected = await chunk.sha256(), file.chunk_sha256[self._next]
                if found != expected:
                    raise SourceError(f"chunk {self._next} has SHA-256 {found}, expected {expected}")
                await job.store.put_chunk(file.sha256, self._next, chunk, found)
                self._count_in(chunk)
        if self._next < stop:
            raise SourceError(f"ended before chunk {self._next}")

    def _count_in(self, chunk: Chunk) -> None:
        """The next chunk is stored and right."""
        chunk.feed(self._whole)
        self._job.progress.add(chunk.size)
        self._next += 1
        chunk.release()

    def _nothing_delivered(self, failures: list[tuple[str, SourceError]]) -> DeliveryError:
        told = dict.fromkeys(f"{shorten(source)}: {reason}" for source, reason in failures)
        reasons = "; ".join(told)
        return DeliveryError(
            compose(self._file.name, f"no source delivered it: {reasons}", advice="Check the connection, and reload")
        )
