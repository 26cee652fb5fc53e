"""Loops of clients: how many requests are open, and when they are sent."""

import asyncio

from benchmarks.http_load import closed_loop, open_loop


async def test_a_closed_loop_has_a_request_open_for_each_client() -> None:
    num_open: list[int] = []
    running: set[int] = set()

    async def send(request: int) -> int:
        running.add(request)
        num_open.append(len(running))
        await asyncio.sleep(0)
        running.remove(request)
        return request

    assert sorted(await closed_loop(3, range(10), send)) == list(range(10))
    assert max(num_open) == 3


async def test_an_open_loop_waits_for_no_answer() -> None:
    is_answered = asyncio.Event()

    async def send(request: str) -> str:
        if request == "last":
            is_answered.set()
        await is_answered.wait()
        return request

    assert await open_loop([(0.0, "first"), (0.01, "last")], send) == ["first", "last"]
