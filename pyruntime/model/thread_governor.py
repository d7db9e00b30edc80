"""How many threads should compute, found out while computing.

All of them, normally. When other processes take the cores, fewer can be faster: a thread that is put aside in the middle of
its work is waited for. So now and then, and soon after runs have become slow, there is a trial: every fourth run is made with
another number, and the faster of the two stays. The two take turns because what disturbs one run disturbs its neighbours
too: the page's own frames did, and trials of neighbouring runs came out at random. Each trial that changes nothing makes
the time to the next four times as long. Results do not depend on the number, so a trial costs nothing but a few milliseconds.

Pure: it is told times and asked for numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

TRIAL_RUNS = 5  # runs with another number in a trial
TRIAL_EVERY = 4  # one of so many runs
SOON_RUNS = 32  # runs before the first trial, and after something has changed
CALM_RUNS = 512  # runs between two trials at most
_WINDOW = TRIAL_RUNS * (TRIAL_EVERY - 1)
_SLOW = 1.5  # times the median when last judged: something has changed
_BETTER = 0.95  # of the present median: worth changing for


class ThreadGovernor:
    """Chooses among all threads, half of them, and one.

    Args:
        most: threads there are.
    """

    def __init__(self, most: int) -> None:
        self._numbers = sorted({most, max(1, most // 2), 1}, reverse=True)
        self._current = most
        self._times = deque[float](maxlen=_WINDOW)  # of the present number
        self._tried: int | None = None
        self._trial: list[float] = []  # times of the number on trial
        self._next_trial = 0  # which of the others is tried next
        self._runs, self._interval = 0, SOON_RUNS  # since the last trial or in it; until the next
        self._usual = float("inf")  # median of the present number when last judged

    def choose(self) -> int:
        """Threads for the next run."""
        if self._tried is not None and self._runs % TRIAL_EVERY == TRIAL_EVERY - 1:
            return self._tried
        return self._current

    def record(self, threads: int, seconds: float) -> None:
        """Take note of a run.

        Args:
            threads: how many it had.
            seconds: how long it took; comparable with others told to this governor.
        """
        if len(self._numbers) == 1:
            return
        self._runs += 1
        if threads == self._tried:
            self._trial.append(seconds)
            if len(self._trial) == TRIAL_RUNS:
                self._judge(threads)
        elif threads == self._current:
            self._times.append(seconds)
            if self._tried is None:
                self._consider_trial(seconds)

    def _consider_trial(self, seconds: float) -> None:
        full = len(self._times) == _WINDOW
        # Only behind a slow run can the median be slow, and it takes longer to find than all else here.
        if full and seconds > _SLOW * self._usual and _median(self._times) > _SLOW * self._usual:
            self._usual, self._interval = _median(self._times), 0
        if full and self._runs >= self._interval:
            others = [number for number in self._numbers if number != self._current]
            self._tried = others[self._next_trial % len(others)]
            self._next_trial += 1
            self._trial, self._runs = [], 0

    def _judge(self, tried: int) -> None:
        if _median(self._trial) < _BETTER * _median(self._times):
            self._current, self._interval = tried, SOON_RUNS
            self._times.clear()
            self._times.extend(self._trial)
        else:
            self._interval = min(max(4 * self._interval, SOON_RUNS), CALM_RUNS)
        self._usual = _median(self._times)
        self._tried, self._runs = None, 0


def _median(seconds: Collection[float]) -> float:
    """The middle one; the module `statistics` would load decimal numbers into the browser for it."""
    return sorted(seconds)[len(seconds) // 2]
