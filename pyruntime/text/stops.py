"""Stop strings across token boundaries: no part of one is ever shown, and nothing else is ever lost.

Text that could still become a stop string is held back and released as soon as it cannot, or at the end. Among
several matches the one that ends first wins; of those that end at the same character, the longest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class StopFilter:
    """Passes text through until a stop string is complete.

    Args:
        stops: the stop strings, none empty.

    Attributes:
        matched: the stop string that was found, or None so far.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = sorted(set(stops), key=len, reverse=True)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The text that may be shown now. After a match, always the empty string."""
        if self.matched is not None:
            return ""
        if not self._stops:
            return text
        pending = self._held + text
        # A match must end inside the new text: everything before it has been looked at.
        for end in range(len(self._held) + 1, len(pending) + 1):
            for stop in self._stops:
                if pending.endswith(stop, 0, end):
                    self.matched, self._held = stop, ""
                    return pending[: end - len(stop)]
        keep = self._longest_open_prefix(pending)
        self._held = pending[len(pending) - keep :]
        return pending[: len(pending) - keep]

    def flush(self) -> str:
        """The text still held back: at the end of an answer it can no longer become a stop string."""
        held, self._held = self._held, ""
        return held

    def _longest_open_prefix(self, pending: str) -> int:
        longest = min(len(pending), max(map(len, self._stops)) - 1)
        for length in range(longest, 0, -1):
            tail = pending[len(pending) - length :]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
