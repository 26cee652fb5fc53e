"""Wake-ups of requests that wait for a copy, on a loop whose time is computed."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.replica import Copy
from penstock.gateway.adapters.copy_waiters import CopyWaiters
from penstock.gateway.adapters.residency import AdapterResidency
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.stats.adapter_stats import AdapterStatsRegistry

POD, SERVICE, SQL = "a/p0", "a/chat", "sql@00000000"
LOADING, RESIDENT = {SQL: Copy("Loading")}, {SQL: Copy("Resident")}


@asynccontextmanager
async def waiting(residency, requests, *, for_room=False, can_use=()):
    """Requests (service, adapter) that wait again whenever they wake up, except where they can use a copy.

    can_use: pods whose copies serve them. Yields how often each of them woke up.
    """
    wakes = Counter()

    async def wait(number, service, adapter):
        while not residency.holders(can_use, adapter):
            await residency.waiters.wait(service, adapter, 1000.0, for_room=for_room)
            wakes[number, service] += 1
        residency.waiters.note_found(service, adapter)

    tasks = [asyncio.create_task(wait(number, *request)) for number, request in enumerate(requests)]
    await asyncio.sleep(0)
    yield wakes
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def new_residency():
    now = asyncio.get_running_loop().time
    residency = AdapterResidency(now)
    residency.update({POD: SERVICE, "a/other": "a/other", "b/p0": "b/chat"})
    for pod in (POD, "a/other", "b/p0"):
        residency.note_list(pod, {}, now())
    return residency


def test_a_copy_in_memory_wakes_all_that_can_use_it_at_once(run_virtually):
    async def main():
        residency = new_residency()
        async with waiting(residency, [(SERVICE, SQL)] * 1000, can_use=[POD]) as wakes:
            residency.note_list(POD, RESIDENT, 0.0)
            await asyncio.sleep(0.001)
            assert wakes.total() == len(wakes) == 1000

    run_virtually(main)


def test_a_copy_that_some_requests_cannot_use_wakes_those_that_can(run_virtually):
    """Requests of another revision are first in the queue, and cannot use the copy."""

    async def main():
        residency = new_residency()
        async with (
            waiting(residency, [(SERVICE, SQL)] * 12) as others,
            waiting(residency, [(SERVICE, SQL)] * 100, can_use=[POD]) as wakes,
        ):
            residency.note_list(POD, RESIDENT, 0.0)
            await asyncio.sleep(0.2)
            assert wakes.total() == len(wakes) == 100
            assert others.total() == len(others) == 12

    run_virtually(main)


def test_lists_of_a_copy_that_nobody_can_use_wake_requests_at_a_bounded_rate(run_virtually):
    async def main():
        residency = new_residency()
        async with waiting(residency, [(SERVICE, SQL)] * 1000) as wakes:
            for number in range(98):  # 0.98 s, before any request makes its choice again
                residency.note_list(POD, {} if number % 2 else RESIDENT, 0.0)
                await asyncio.sleep(0.01)
            assert wakes.total() == len(wakes) == 100

    run_virtually(main)


def test_the_list_of_another_service_wakes_no_request(run_virtually):
    """Engines list any names: also those of another's adapters, which may have the same name and files."""

    async def main():
        residency = new_residency()
        requests = [(SERVICE, SQL), ("b/chat", SQL)]
        async with (
            waiting(residency, requests) as wakes,
            waiting(residency, requests, for_room=True) as for_room,
        ):
            residency.note_list("a/other", RESIDENT, 0.0)
            await asyncio.sleep(0.1)
            assert (wakes, for_room) == ({}, {})

    run_virtually(main)


def test_a_list_that_changes_all_the_time_wakes_one_request_in_an_interval(run_virtually):
    async def main():
        residency = new_residency()
        async with waiting(residency, [(SERVICE, SQL)] * 100) as wakes:
            for number in range(88):  # 0.88 s, before any request makes its choice again
                residency.note_list(POD, {} if number % 2 else LOADING, 0.0)
                await asyncio.sleep(0.01)
            assert wakes.total() == len(wakes) == 18

    run_virtually(main)


def test_a_change_wakes_the_first_request_of_the_service(run_virtually):
    """Two namespaces may have the same name in engines, each on engines of its own."""

    async def main():
        residency = new_residency()
        requests = [(SERVICE, SQL), ("b/chat", SQL), ("b/chat", SQL)]
        async with waiting(residency, requests) as wakes:
            residency.note_list("b/p0", LOADING, 0.0)
            await asyncio.sleep(0.1)
            assert wakes == {(1, "b/chat"): 1}

    run_virtually(main)


def test_room_wakes_the_first_request_of_each_adapter_that_waits_for_it(run_virtually):
    async def main():
        residency = new_residency()
        requests = [(SERVICE, "one"), (SERVICE, "two"), (SERVICE, "two"), ("b/chat", "one")]
        async with (
            waiting(residency, requests, for_room=True) as wakes,
            waiting(residency, [(SERVICE, "three")]) as others,
        ):
            residency.waiters.note_room(SERVICE)
            await asyncio.sleep(0.1)
            assert wakes == {(0, SERVICE): 1, (1, SERVICE): 1}
            assert others == {}

    run_virtually(main)


def test_room_wakes_requests_of_many_adapters_in_turn_at_a_bounded_rate(run_virtually):
    async def main():
        residency = new_residency()
        many = [(SERVICE, str(number)) for number in range(200)]
        async with (
            waiting(residency, many, for_room=True) as wakes,
            waiting(residency, [("b/chat", SQL)], for_room=True) as others,
        ):
            residency.waiters.note_room(SERVICE)
            await asyncio.sleep(0.025)
            for number in range(1, 5):
                residency.waiters.note_room(SERVICE)
                residency.waiters.note_room("b/chat")
                await asyncio.sleep(0.001)
                assert wakes.total() == len(wakes) == 5 * number
                assert others.total() == number
                await asyncio.sleep(0.049)
            await asyncio.sleep(0.75)
            assert wakes.total() == len(wakes) == 100

    run_virtually(main)


def test_a_copy_in_memory_wakes_its_requests_before_those_that_room_wakes(run_virtually):
    async def main():
        residency = new_residency()
        many = [(SERVICE, str(number)) for number in range(200)]
        requests = [*many[:100], (SERVICE, SQL), *many[100:]]
        async with waiting(residency, requests, for_room=True) as wakes:
            residency.waiters.note_room(SERVICE)
            await asyncio.sleep(0.025)
            residency.note_list(POD, RESIDENT, 0.0)
            await asyncio.sleep(0.05)
            assert wakes.total() == 10
            assert wakes[100, SERVICE] == 1

    run_virtually(main)


@pytest.mark.parametrize("for_room", [False, True])
def test_a_request_that_leaves_as_it_is_woken_wakes_the_next(run_virtually, for_room):
    async def main():
        waiters = CopyWaiters()
        first, second, third = (
            asyncio.create_task(waiters.wait(SERVICE, SQL, 1000.0, for_room=for_room))
            for _ in range(3)
        )
        await asyncio.sleep(0)
        if for_room:
            waiters.note_room(SERVICE)
        else:
            waiters.note_change(SERVICE, SQL)
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0.1)
        assert [each.done() for each in (first, second, third)] == [True, True, False]
        third.cancel()

    run_virtually(main)


def test_the_end_of_a_request_is_room_for_its_service_alone(run_virtually):
    async def main():
        residency, registry = new_residency(), AdapterStatsRegistry()
        registry.listeners.append(residency.waiters.note_room)
        version = AdapterVersion("sql", "pvc://a/sql")
        stats = registry.get(Adapter("a", "sql", "sql", 0, SERVICE, version))
        requests = [(SERVICE, SQL), ("b/chat", SQL)]
        async with waiting(residency, requests, for_room=True) as wakes:
            for request in (stats.hold_queued(), stats.hold_copy(POD)):
                with request:
                    pass
                await asyncio.sleep(0.1)
            assert wakes == {(0, SERVICE): 2}

    run_virtually(main)


def test_many_requests_of_a_namespace_choose_again_at_a_bounded_rate(run_virtually):
    async def main():
        residency = new_residency()
        async with (
            waiting(residency, [(SERVICE, SQL)] * 1000) as many,
            waiting(residency, [("b/chat", SQL)]) as few,
        ):
            await asyncio.sleep(100.5)
            assert 9_000 <= many.total() <= 11_000  # 100 in a second
            assert few.total() == 100

    run_virtually(main)
