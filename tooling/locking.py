"""One run at a time changes .venv, the cache and dist/: a second one waits and says so."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator

from tooling.console import ToolingError, say

try:
    import fcntl
except ImportError as error:  # Windows
    raise ToolingError("the build needs Linux or macOS; on Windows run it in WSL") from error


@contextlib.contextmanager
def exclusive(path: pathlib.Path) -> Iterator[None]:
    """Hold the lock file at `path`; the system lets go of it even when the process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another run is installing or building; waiting for it…")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
