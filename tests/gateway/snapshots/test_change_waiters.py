"""Wake-ups of requests that wait for a change, on a loop whose time is computed."""

import asyncio

import pytest

from penstock.gateway.snapshots.change_waiters import MAX_WAKE_SHARE, WAKE_S, ChangeWaiters

NUM_WAITING = 1000
INTERVAL_S = NUM_WAITING * WAKE_S / MAX_WAKE_SHARE


class Requests:
    """Requests that wait again each time that they are woken. wakes: how often, by service."""

    def __init__(self, waiters):
        self.waiters, self.wakes = waiters, {}

    async def wait(self, service, adapter=""):
        self.wakes.setdefault(service, 0)
        while await self.waiters.wait((service, adapter), 60.0):
            self.wakes[service] += 1


async def change(waiters, *keys):
    waiters.wake(keys)
    for _ in range(3):  # turns of the loop, in which woken requests wait again
        await asyncio.sleep(0)


def test_objects_that_change_all_the_time_wake_requests_within_a_share_of_the_loop(run_virtually):
    async def main():
        waiters = ChangeWaiters()
        requests = Requests(waiters)
        tasks = [asyncio.create_task(requests.wait("evil/chat")) for _ in range(NUM_WAITING)]
        tasks.append(asyncio.create_task(requests.wait("good/chat")))
        await asyncio.sleep(0)
        for _ in range(100):
            await change(waiters, ("evil/chat", ""), ("good/chat", ""))
            await asyncio.sleep(INTERVAL_S / 10)
        assert requests.wakes["evil/chat"] == 10 * NUM_WAITING
        assert requests.wakes["good/chat"] == 100
        for task in tasks:
            task.cancel()

    run_virtually(main)


@pytest.mark.parametrize("services", [("team/chat", "team/chat"), ("team/chat", "team/other")])
def test_a_change_within_the_interval_is_not_lost(run_virtually, services):
    async def main():
        waiters = ChangeWaiters()
        requests = Requests(waiters)
        tasks = [
            asyncio.create_task(requests.wait(each))
            for each in {*services}
            for _ in range(NUM_WAITING // 2)
        ]
        await asyncio.sleep(0)
        first, second = services
        await change(waiters, (first, ""))
        before = dict(requests.wakes)
        await change(waiters, (second, ""))
        assert requests.wakes == before
        await asyncio.sleep(INTERVAL_S)
        assert requests.wakes[second] == before[second] + NUM_WAITING // 2
        assert all(not task.done() for task in tasks)

    run_virtually(main)


def test_a_wait_ends_without_a_change_and_leaves_nothing(run_virtually):
    async def main():
        waiters = ChangeWaiters()
        waits = [waiters.wait(("team/chat", "team/sql"), 1.0) for _ in range(2)]
        assert await asyncio.gather(*waits) == [False, False]
        assert waiters.keys == []
        waiters.wake([("team/chat", "team/sql")])

    run_virtually(main)
