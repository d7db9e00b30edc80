"""Engines of several tabs on one device: who is let through, who waits, and when the wait ends."""

import asyncio

import pytest

from pyruntime.memory_share import MemoryShare, shortage
from tests.lock_fakes import FakeLocks

GIB = 2**30
MB = 1_000_000


@pytest.mark.parametrize(
    ("needed", "others", "device", "is_room"),
    [
        (100 * GIB, [], 1, True),  # the first: the browser says whether it can have it
        (GIB, [GIB], 4, True),
        (GIB, [GIB, 1], 4, False),
        (GIB, [GIB], None, True),  # taken to have 4 GiB
        (GIB + 1, [GIB], None, False),
        (1, [GIB // 2], 1, False),
    ],
)
def test_engines_of_all_tabs_together_may_take_half_of_the_devices_memory(needed, others, device, is_room):
    assert (shortage(needed, others, device) is None) == is_room


def test_a_shortage_is_told_with_the_numbers_and_what_to_do():
    assert str(shortage(190 * MB, [190 * MB, 10 * MB], 0.25)) == (
        "The model needs 190 MB of memory, and models in other tabs hold 200 MB. Together they may take 134 MB of the 268 MB "
        "that this device has. Close another tab of this app, and this one goes on by itself"
    )
    assert "of the 4,295 MB that this device is taken to have" in str(shortage(3 * GIB, [1], None))


async def settle():
    for _ in range(50):
        await asyncio.sleep(0)


def test_a_tab_without_room_waits_and_goes_on_when_enough_has_been_given_back():
    async def scenario():
        locks, told = FakeLocks(), []
        tabs = [MemoryShare(locks, 1) for _ in range(4)]
        for tab in tabs[:2]:
            await tab.take(GIB // 4, told.append)
        assert told == []
        waiting = asyncio.ensure_future(tabs[2].take(GIB // 2, told.append))
        await settle()
        assert [(one.needed, one.held, one.limit) for one in told] == [(GIB // 2, GIB // 2, GIB // 2)]
        tabs[0].release()  # not enough yet
        await settle()
        assert [one.held for one in told] == [GIB // 2, GIB // 4]
        assert not waiting.done()
        tabs[1].release()
        await asyncio.wait_for(waiting, 5)
        last = asyncio.ensure_future(tabs[3].take(1, told.append))
        await settle()
        assert not last.done()
        tabs[2].release()
        await asyncio.wait_for(last, 5)

    asyncio.run(scenario())


def test_of_two_tabs_that_wait_for_the_same_room_one_gets_it():
    async def scenario():
        locks = FakeLocks()
        first, *others = (MemoryShare(locks, 1) for _ in range(3))
        await first.take(GIB // 2, lambda shortage: None)
        waiting = [asyncio.ensure_future(tab.take(GIB // 2, lambda shortage: None)) for tab in others]
        await settle()
        first.release()
        await settle()
        assert sorted(task.done() for task in waiting) == [False, True]
        next(tab for tab, task in zip(others, waiting, strict=True) if task.done()).release()
        await asyncio.wait_for(asyncio.gather(*waiting), 5)

    asyncio.run(scenario())


def test_locks_of_other_kinds_count_for_nothing_and_without_locks_all_go_on():
    async def scenario():
        locks = FakeLocks()
        for name in ("tinypylm:file 0123", "tinypylm:memory", f"other {GIB}", "tinypylm:memory x y"):
            done = await locks.hold(name)
            if name == "tinypylm:memory":
                done()
                await settle()
        await MemoryShare(locks, 0.25).take(GIB, pytest.fail)
        for _ in range(2):
            tab = MemoryShare(None, 0.25)
            await tab.take(GIB, pytest.fail)
            tab.release()

    asyncio.run(scenario())
