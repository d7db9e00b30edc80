"""Engines of several tabs on one device: whether there is memory for one more, and waiting until there is.

Each tab that has an engine holds a lock whose name says how much memory that takes, so tabs need no other way of talking,
and the memory of one that was closed or has crashed is free again. The first engine is always let through: whether the device
has room for it is found when its memory is asked for.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyruntime.delivery.locks import Locks, Release

SHARE = 0.5  # of the device's memory, for the engines of all tabs together
ASSUMED_GIB = 4.0  # where the browser does not tell, as Firefox and Safari do not
_DECIDING = "tinypylm:memory"
_NAME = re.compile(_DECIDING + r" (\d{1,15}) \w+")


@dataclass(frozen=True)
class Shortage:
    """Why an engine has to wait; all numbers are bytes.

    Attributes:
        needed: by this engine.
        held: by those of other tabs.
        limit: most that all together may take.
        device: what the device has.
        is_assumed: whether that is a guess.
    """

    needed: int
    held: int
    limit: int
    device: int
    is_assumed: bool

    def __str__(self) -> str:
        """The shortage in a few sentences, with what to do."""
        device = "that this device is taken to have" if self.is_assumed else "that this device has"
        return (
            f"The model needs {_mb(self.needed)} of memory, and models in other tabs hold {_mb(self.held)}. Together they may "
            f"take {_mb(self.limit)} of the {_mb(self.device)} {device}. "
            "Close another tab of this app, and this one goes on by itself"
        )


def shortage(needed: int, others: Iterable[int], device_gib: float | None) -> Shortage | None:
    """What stands in the way of an engine of `needed` bytes beside others; None when there is room.

    Args:
        needed: its bytes.
        others: those of each engine that is there.
        device_gib: memory of the device in GiB, as far as it is known. Browsers round it and tell no more than 8 or 32.
    """
    held = sum(others)
    device = round((device_gib or ASSUMED_GIB) * 2**30)
    limit = round(SHARE * device)
    if held == 0 or held + needed <= limit:
        return None
    return Shortage(needed, held, limit, device, is_assumed=not device_gib)


class MemoryShare:
    """One tab's part of what the engines of all tabs take.

    Args:
        locks: which every tab sees; None where there are none, and every engine is let through.
        device_gib: as `shortage`.
    """

    def __init__(self, locks: Locks | None, device_gib: float | None) -> None:
        self._locks, self._device_gib = locks, device_gib
        self._release: Release | None = None

    async def take(self, n_bytes: int, on_shortage: Callable[[Shortage], None]) -> None:
        """Take that much as soon as there is room beside the other tabs' engines; `release` gives it back.

        Args:
            n_bytes: of this tab's engine; it has none yet.
            on_shortage: told why it has to wait, each time that other engines leave too little room.
        """
        locks = self._locks
        if locks is None:
            return
        while True:
            done = await locks.hold(_DECIDING)  # one tab at a time looks and takes
            try:
                others = {name: size for name in await locks.held() if (size := _size(name)) is not None}
                missing = shortage(n_bytes, others.values(), self._device_gib)
                if missing is None:
                    self._release = await locks.hold(f"{_DECIDING} {n_bytes} {uuid.uuid4().hex}")
                    return
            finally:
                done()
            on_shortage(missing)
            await locks.any_free(list(others))

    def release(self) -> None:
        """Give back what was taken; nothing was: nothing happens."""
        if self._release is not None:
            self._release()
            self._release = None


def _size(name: str) -> int | None:
    """The bytes of an engine by the name of its lock; None for any other lock."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def _mb(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.0f} MB"
