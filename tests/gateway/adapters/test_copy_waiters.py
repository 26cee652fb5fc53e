"""Wake-ups of requests that wait for a copy, on a loop whose time is computed."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

from penstock.core.adapters.replica import Copy
from penstock.gateway.adapter_residency import AdapterResidency

POD, SQL = "a/p0", "sql@00000000"
LOADING, RESIDENT = {SQL: Copy("Loading")}, {SQL: Copy("Resident")}


@asynccontextmanager
async def waiting(residency, services, *, for_room=False):
    """Requests that wait again whenever they wake up. Yields how often each of them woke up."""
    wakes = Counter()

    async def wait(number, service):
        while True:
            await residency.waiters.wait(SQL, service, 1000.0, for_room=for_room)
            wakes[number, service] += 1

    tasks = [asyncio.create_task(wait(*each)) for each in enumerate(services)]
    await asyncio.sleep(0)
    yield wakes
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def new_residency():
    now = asyncio.get_running_loop().time
    residency = AdapterResidency(now)
    residency.note_list(POD, {}, now())
    return residency


def test_a_copy_in_memory_wakes_all_at_once(run_virtually):
    async def main():
        residency = new_residency()
        async with waiting(residency, ["a/chat"] * 100) as wakes:
            residency.note_list(POD, RESIDENT, 0.0)
            await asyncio.sleep(0.001)
            assert wakes.total() == len(wakes) == 100

    run_virtually(main)


def test_a_list_that_changes_all_the_time_wakes_one_request_in_an_interval(run_virtually):
    async def main():
        residency = new_residency()
        async with waiting(residency, ["a/chat"] * 100) as wakes:
            for number in range(91):  # 0.9 s, before any request makes its choice again
                residency.note_list(POD, {} if number % 2 else LOADING, 0.0)
                await asyncio.sleep(0.01)
            assert wakes.total() == len(wakes) == 18

    run_virtually(main)


def test_a_change_wakes_the_first_request_of_each_service(run_virtually):
    """Two namespaces may have the same name in engines, each on engines of its own."""

    async def main():
        residency = new_residency()
        async with waiting(residency, ["a/chat", "b/chat", "b/chat"]) as wakes:
            residency.note_list(POD, LOADING, 0.0)
            await asyncio.sleep(0.1)
            assert wakes == {(0, "a/chat"): 1, (1, "b/chat"): 1}

    run_virtually(main)


def test_room_wakes_the_first_request_of_each_service_that_waits_for_it(run_virtually):
    async def main():
        residency = new_residency()
        async with (
            waiting(residency, ["a/chat", "b/chat", "b/chat"], for_room=True) as wakes,
            waiting(residency, ["c/chat"]) as others,
        ):
            residency.waiters.note_room()
            await asyncio.sleep(0.1)
            assert wakes == {(0, "a/chat"): 1, (1, "b/chat"): 1}
            assert others == {}

    run_virtually(main)


def test_many_requests_of_a_namespace_choose_again_at_a_bounded_rate(run_virtually):
    async def main():
        residency = new_residency()
        async with (
            waiting(residency, ["a/chat"] * 1000) as many,
            waiting(residency, ["b/chat"]) as few,
        ):
            await asyncio.sleep(100.5)
            assert 9_000 <= many.total() <= 11_000  # 100 in a second
            assert few.total() == 100

    run_virtually(main)
