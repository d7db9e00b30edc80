"""How many threads should compute, found out while computing.

All of them, normally. When other processes take the cores, fewer can be faster: a thread that is put aside in the middle of
its work is waited for. So now and then, and soon after runs have become slow, a few runs are made with another number, and
the faster one stays. Each trial that changes nothing doubles the time to the next: where the page itself takes a core for
moments, frequent trials would cost more than they find. Results do not depend on the number.

Pure: it is told times and asked for numbers.
"""

from __future__ import annotations

import statistics
from collections import deque

PROBE_RUNS = 3  # runs with another number before it is judged
SOON_RUNS = 16  # runs before the first trial, and after something has changed
CALM_RUNS = 256  # runs between two trials at most
_SLOW = 1.25  # times the median when last judged: something has changed
_BETTER = 0.95  # of the present median: worth changing for


class ThreadGovernor:
    """Chooses among all threads, half of them, and one.

    Args:
        most: threads there are.
    """

    def __init__(self, most: int) -> None:
        self._numbers = sorted({most, max(1, most // 2), 1}, reverse=True)
        self._times = {number: deque[float](maxlen=5) for number in self._numbers}
        self._current = most
        self._probed: int | None = None
        self._next_probe = 0  # which of the others is tried next
        self._since_probe, self._interval = 0, SOON_RUNS
        self._usual = float("inf")  # median of the present number when last judged

    def choose(self) -> int:
        """Threads for the next run."""
        return self._current if self._probed is None else self._probed

    def record(self, threads: int, seconds: float) -> None:
        """Take note of a run.

        Args:
            threads: how many it had.
            seconds: how long it took, per token; comparable with others told to this governor.
        """
        if len(self._numbers) == 1 or threads not in self._times:
            return
        self._times[threads].append(seconds)
        if threads == self._probed:
            if len(self._times[threads]) >= PROBE_RUNS:
                self._judge(threads)
        elif self._probed is None:
            self._since_probe += 1
            if self._median(threads) > _SLOW * self._usual:
                self._usual, self._interval = self._median(threads), SOON_RUNS
            if self._since_probe >= self._interval:
                self._start_probe()

    def _start_probe(self) -> None:
        others = [number for number in self._numbers if number != self._current]
        self._probed = others[self._next_probe % len(others)]
        self._next_probe += 1
        self._times[self._probed].clear()

    def _judge(self, probed: int) -> None:
        if self._median(probed) < _BETTER * self._median(self._current):
            self._current, self._interval = probed, SOON_RUNS
        else:
            self._interval = min(2 * self._interval, CALM_RUNS)
        self._usual = self._median(self._current)
        self._probed, self._since_probe = None, 0

    def _median(self, number: int) -> float:
        return statistics.median(self._times[number])
