"""How many threads should compute, found out while computing.

All of them, normally. When other processes take the cores, fewer can be faster: a thread that is put aside in the middle of
its work is waited for. So now and then, and at once when runs have become slow, a few runs are made with another number,
and the faster one stays. Results do not depend on the number, so trying costs nothing but a few milliseconds.

Pure: it is told times and asked for numbers.
"""

from __future__ import annotations

import statistics
from collections import deque

PROBE_RUNS = 3  # runs with another number before it is judged
CALM_RUNS = 64  # runs between two probes while nothing changes
ALARMED_RUNS = 12  # runs between two probes while runs are slow
_SLOW = 1.25  # times the best median known: something has changed
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
        self._since_probe = 0

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
            if self._since_probe >= (ALARMED_RUNS if self._is_slow() else CALM_RUNS):
                self._start_probe()

    def _start_probe(self) -> None:
        others = [number for number in self._numbers if number != self._current]
        self._probed = others[self._next_probe % len(others)]
        self._next_probe += 1
        self._times[self._probed].clear()

    def _judge(self, probed: int) -> None:
        if self._median(probed) < _BETTER * self._median(self._current):
            self._current = probed
        self._probed, self._since_probe = None, 0

    def _is_slow(self) -> bool:
        known = [self._median(number) for number in self._numbers if self._times[number]]
        times = self._times[self._current]
        return self._median(self._current) > _SLOW * min(known) or times[-1] > _SLOW * min(times)

    def _median(self, number: int) -> float:
        return statistics.median(self._times[number])
