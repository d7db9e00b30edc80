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
        # What is held has no whole stop string in it, so the first occurrence of each is the one that ends first.
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := pending.find(stop)) >= 0]
        if found:
            _, at, self.matched = min(found)
            self._held = ""
            return pending[:at]
        keep = self._longest_open_prefix(pending)
        self._held = pending[len(pending) - keep :]
        return pending[: len(pending) - keep]

    def flush(self) -> str:
        """The text still held back: at the end of an answer it can no longer become a stop string."""
        held, self._held = self._held, ""
        return held

    def _longest_open_prefix(self, pending: str) -> int:
        longest = 0
        for stop in self._stops:
            # Only where the stop string's first character stands can it have begun.
            at = pending.find(stop[0], max(0, len(pending) - len(stop) + 1))
            while at >= 0 and not stop.startswith(pending[at:]):
                at = pending.find(stop[0], at + 1)
            longest = max(longest, len(pending) - at if at >= 0 else 0)
        return longest
