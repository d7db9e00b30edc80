"""What the commands print: lines, progress, and failures as one sentence instead of a traceback."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType

_SECONDS_BETWEEN_LINES = 3.0  # where the output is not a terminal, so a log stays short


class ToolingError(Exception):
    """A step failed; `str(error)` names the thing and says what to do."""


def say(text: str) -> None:
    """Print one line at once."""
    print(text, flush=True)


def human_size(size: int) -> str:
    """A size as people read it: `98.4 MB`, `12 kB`, `5 bytes`."""
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{round(size / 1e3)} kB"


class Progress:
    """One line that grows: rewritten in a terminal, repeated every few seconds in a log.

    Args:
        label: what is being done, as the line begins.
        total: bytes to come; 0 when that is not known.
    """

    def __init__(self, label: str, total: int = 0) -> None:
        self._label, self._total = label, total
        self._terminal = sys.stdout.isatty()
        self._shown_at = time.monotonic()
        if self._terminal:
            print(f"\r  {label}", end="", flush=True)

    def update(self, done: int) -> None:
        """Show that `done` bytes are there."""
        now = time.monotonic()
        if now - self._shown_at < (0.1 if self._terminal else _SECONDS_BETWEEN_LINES):
            return
        self._shown_at = now
        text = f"  {self._label}: {done / 1e6:.1f}" + (f" of {human_size(self._total)}" if self._total else " MB")
        print(f"\r{text}" if self._terminal else text, end="" if self._terminal else "\n", flush=True)

    def finish(self, note: str) -> None:
        """End the line with `note`."""
        erase = "\r\033[K" if self._terminal else ""
        say(f"{erase}  {self._label}: {note}")

    def __enter__(self) -> Progress:  # noqa: PYI034 - typing.Self is too new for the Python that may start here
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._terminal:
            print(flush=True)  # what follows, the failure, begins on its own line


def run_command(main: Callable[[], int]) -> int:
    """The exit code of `main`, with failures and Ctrl-C told in one line."""
    try:
        return main()
    except ToolingError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr, flush=True)
        return 130
