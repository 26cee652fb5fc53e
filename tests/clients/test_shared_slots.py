"""Slots for requests, of which no namespace can take all."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.clients.pods.shared_slots import SharedSlots


class Holders:
    """Tasks that hold slots until they are told to end."""

    def __init__(self, size):
        self.slots = SharedSlots(size)
        self._ends = []
        self.num_held = {}

    async def start(self, namespace, count=1):
        for _ in range(count):
            end = asyncio.Event()
            self._ends.append((namespace, asyncio.create_task(self._hold(namespace, end)), end))
        await settle()

    async def _hold(self, namespace, end):
        async with self.slots.hold(namespace):
            self.num_held[namespace] = self.num_held.get(namespace, 0) + 1
            try:
                await end.wait()
            finally:
                self.num_held[namespace] -= 1

    async def end(self, number):
        self._ends[number][2].set()
        await settle()

    async def cancel(self, number):
        self._ends[number][1].cancel()
        await settle()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for _, task, _ in self._ends:
            task.cancel()
        await asyncio.gather(*(task for _, task, _ in self._ends), return_exceptions=True)


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_each_namespace_leaves_slots_to_the_next():
    async with Holders(12) as holders:
        await holders.start("a", 12)
        assert holders.num_held == {"a": 6}
        await holders.start("b", 12)
        assert holders.num_held == {"a": 6, "b": 3}
        await holders.start("c")
        assert holders.num_held == {"a": 6, "b": 3, "c": 1}
        assert holders.slots.num_held == 10
    assert holders.slots.num_held == 0


async def test_parts_of_namespaces_that_fill_theirs_one_after_the_other():
    async with Holders(64) as holders:
        for namespace in "abcdefgh":
            await holders.start(namespace, 40)
        assert list(holders.num_held.values()) == [32, 16, 8, 4, 2, 1, 1]


async def test_freed_slot_goes_to_the_namespaces_in_turn():
    async with Holders(6) as holders:
        await holders.start("a", 6)
        await holders.start("b", 3)
        assert holders.num_held == {"a": 3, "b": 1}
        await holders.end(0)
        assert holders.num_held == {"a": 2, "b": 2}
        await holders.end(1)
        assert holders.num_held == {"a": 2, "b": 2}


@pytest.mark.parametrize("number", [0, 1])
async def test_cancelled_holders_and_waiters_leave_their_slot_to_others(number):
    async with Holders(1) as holders:
        await holders.start("a", 2)
        await holders.start("b")
        await holders.cancel(number)
        await holders.end(1 - number)
        assert holders.num_held == {"a": 0, "b": 1}


@given(
    size=st.integers(1, 20),
    demands=st.dictionaries(st.sampled_from("abcde"), st.integers(1, 30), min_size=1),
)
def test_no_namespace_takes_all_and_none_holds_more_than_there_are(size, demands):
    async def run():
        async with Holders(size) as holders:
            for namespace, count in demands.items():
                await holders.start(namespace, count)
                num_held = sum(holders.num_held.values())
                assert num_held <= size
                assert holders.num_held.get(namespace, 0) <= (size + 1) // 2
            assert len(holders.num_held) >= min(len(demands), size.bit_length())

    asyncio.run(run())


def test_slot_that_is_wanted_now_is_free_or_not():
    slots = SharedSlots(2)
    with slots.hold_now("a") as is_held:
        assert is_held
        with slots.hold_now("a") as is_held:
            assert not is_held
        with slots.hold_now("b") as is_held:
            assert is_held
        with slots.hold_now("a") as is_held:
            assert not is_held
    with slots.hold_now("a") as is_held:
        assert is_held


async def test_slots_held_at_once_do_not_change_whose_turn_it_is():
    async with Holders(2) as holders:
        with holders.slots.hold_now("a"):
            pass
        for namespace in "acab":
            await holders.start(namespace)
        assert holders.num_held == {"a": 1, "c": 1}
        await holders.end(1)
        assert holders.num_held == {"a": 1, "c": 0, "b": 1}
