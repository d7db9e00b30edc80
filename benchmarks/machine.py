"""The machine a benchmark runs on: what it is, who uses its processors, and how much memory a browser took. Linux only.

Nothing here is measured in the page. A step that other processes disturbed is done again, a few times at most: on two
cores anything else that runs changes a figure by more than most changes of the code do.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tooling.console import ToolingError

QUIET_CORES = 0.15  # what others may use of the processors while a step is measured
ATTEMPTS = 4
PATIENCE = 20.0

_LOOK_EVERY, _CALM_LOOKS = 0.5, 4

_PROC = Path("/proc")
_T = TypeVar("_T")


@dataclass(frozen=True)
class CpuReading:
    """Seconds on three clocks.

    Attributes:
        wall: time that passed.
        machine: processor time that anything used, what a hypervisor took away included.
        own: processor time of this process and of all it started.
    """

    wall: float
    machine: float
    own: float


def foreign_cores(before: CpuReading, after: CpuReading) -> float:
    """How many processors others used between two readings, on average; at least 0."""
    others = (after.machine - before.machine) - (after.own - before.own)
    return max(0.0, others / max(after.wall - before.wall, 1e-3))


def read_cpu() -> CpuReading:
    """A reading, now."""
    tick = os.sysconf("SC_CLK_TCK")
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, _read("stat").split()[1:9])
    # Times of children that have ended are in their parent's.
    own = sum(sum(map(int, _stat(process)[11:15])) for process in descendants(os.getpid()))
    return CpuReading(time.monotonic(), (user + nice + system + irq + softirq + steal) / tick, own / tick)


class NoiseGuard:
    """Repeats steps that other processes disturbed.

    Args:
        read: gives a `CpuReading`.
        limit: processors that others may use.
        attempts: how often a step is done at most.
        patience: no attempt begins after so many seconds.
    """

    def __init__(
        self,
        read: Callable[[], CpuReading] = read_cpu,
        *,
        limit: float = QUIET_CORES,
        attempts: int = ATTEMPTS,
        patience: float = PATIENCE,
    ) -> None:
        self._read, self._limit, self._attempts, self._patience = read, limit, attempts, patience

    def quiet(self, step: Callable[[], _T]) -> tuple[_T, float]:
        """The result of the first attempt that was left alone, or else of the least disturbed; and what others used."""
        tried: list[tuple[_T, float]] = []
        begun = before = self._read()
        while True:
            result = step()
            after = self._read()
            tried.append((result, foreign_cores(before, after)))
            is_late = after.wall - begun.wall > self._patience or len(tried) >= self._attempts
            if tried[-1][1] <= self._limit or is_late:
                break
            before = after
        return min(tried, key=lambda attempt: attempt[1])


@contextlib.contextmanager
def busy_core(*, wanted: bool) -> Iterator[None]:
    """Another process of ours that computes all the time, while the block runs."""
    if not wanted:
        yield
        return
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def descendants(root: int) -> list[int]:
    """A process and all that it and its children started and that still run."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = [], [root]
    while left:
        found.append(left.pop())
        left += children.get(found[-1], [])
    return found


def wait_until_idle(process: int, within: float = 120.0) -> None:
    """Return when a process and all that it started have used less than a tenth of a core for two seconds.

    Args:
        process: its number.
        within: seconds to wait at most; ToolingError then.
    """
    tick, end, calm, used = os.sysconf("SC_CLK_TCK"), time.monotonic() + within, 0, 0
    while calm < _CALM_LOOKS:
        if time.monotonic() > end:
            raise ToolingError(f"the browser was still busy after {within:.0f} seconds")
        time.sleep(_LOOK_EVERY)  # nothing tells when a browser rests; asking it would wake it
        before, used = used, sum(sum(map(int, _stat(one)[11:13])) for one in descendants(process))
        calm = calm + 1 if used - before < 0.1 * _LOOK_EVERY * tick else 0


def renderer_peak_mib() -> float:
    """Most memory that the largest renderer among our browsers' processes has held at once (VmHWM), in MiB."""
    return _largest_renderer("VmHWM")


def renderer_mib() -> float:
    """Memory that the largest renderer among our browsers' processes holds now (VmRSS), in MiB."""
    return _largest_renderer("VmRSS")


def _largest_renderer(field: str) -> float:
    sizes = []
    for process in descendants(os.getpid()):
        if "--type=renderer" in _read(f"{process}/cmdline"):
            found = re.search(rf"^{field}:\s+(\d+) kB", _read(f"{process}/status"), re.MULTILINE)
            sizes += [int(found[1]) / 1024] if found else []
    if not sizes:
        raise ToolingError("no renderer is running: the browser has ended; run the benchmark again")
    return max(sizes)


def describe() -> dict[str, object]:
    """What a result says about the machine."""
    name = re.search(r"^model name\s*:\s*(.+)$", _read("cpuinfo"), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+) kB", _read("meminfo"), re.MULTILINE)
    return {
        "processor": name[1] if name else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory[1]) / 2**20, 1) if memory else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _stat(process: int) -> list[str]:
    """The fields of a process's `stat` behind its name, state first; empty when it is gone."""
    return _read(f"{process}/stat").rpartition(")")[2].split()


def _read(name: str) -> str:
    """A file of the kernel's about processes; empty when its process is gone."""
    try:
        return (_PROC / name).read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
