"""Sends requests in closed and open loops, and times the events of streams."""

import asyncio
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
)
from typing import Any, TypeVar

import httpx

T = TypeVar("T")
R = TypeVar("R")


async def closed_loop(
    clients: int, requests: Iterable[T], send: Callable[[T], Awaitable[R]]
) -> list[R]:
    """Send requests with so many clients, each of which sends its next one after an answer.

    Returns what `send` returned, in the order of the ends.
    """
    left, results = iter(requests), list[R]()

    async def client() -> None:
        for request in left:
            results.append(await send(request))

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return results


def for_seconds(seconds: float) -> Iterator[None]:
    """The requests of a closed loop that ends after this time, all alike."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        yield None


async def open_loop(
    arrivals: Iterable[tuple[float, T]], send: Callable[[T], Coroutine[Any, Any, R]]
) -> list[R]:
    """Send each request at its time, in seconds from now, however many are open.

    Returns what `send` returned, in the order of the arrivals.
    """
    started_s, tasks = time.monotonic(), list[asyncio.Task[R]]()
    async with asyncio.TaskGroup() as group:
        for at_s, request in arrivals:
            await asyncio.sleep(started_s + at_s - time.monotonic())
            tasks.append(group.create_task(send(request)))
    return [task.result() for task in tasks]


async def stream_events(
    client: httpx.AsyncClient, body: Mapping[str, Any], headers: Mapping[str, str] = {}
) -> AsyncIterator[tuple[float, str]]:
    """Stream a completion. Yields the time and the data of each event but `[DONE]`.

    Raises RuntimeError with what the engine answers if it refuses the request.
    """
    whole = {"stream": True, **body}
    async with client.stream("POST", "/v1/completions", json=whole, headers=headers) as answer:
        if answer.status_code != 200:
            raise RuntimeError((await answer.aread()).decode())
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                yield time.monotonic(), line[6:]
