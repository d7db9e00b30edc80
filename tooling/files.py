"""Files that appear whole or not at all, so that an interrupted run leaves nothing half-made that counts as done."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def write_whole(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes its name `path` only when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, scratch = tempfile.mkstemp(dir=path.parent, prefix="writing-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        Path(scratch).chmod(0o644)
        Path(scratch).replace(path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def replace_folder(new: Path, path: Path) -> None:
    """Put the finished folder `new` in the place of `path`."""
    old = path.with_name(f"{path.name}.old-{os.getpid()}")
    if path.exists():
        path.rename(old)
    new.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def link_or_copy(source: Path, target: Path) -> None:
    """The same bytes under a second name: a hard link where the disk allows it, otherwise a copy."""
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)
