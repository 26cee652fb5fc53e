"""Runs coroutines concurrently, until all have ended or one has failed."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def all_or_none(work: Sequence[Callable[[], Awaitable[T]]], max_concurrent: int) -> list[T]:
    """Runs all, some at a time. If one fails or this is cancelled, cancels the others and waits for them."""
    slots = asyncio.Semaphore(max_concurrent)

    async def run(item: Callable[[], Awaitable[T]]) -> T:
        async with slots:
            return await item()

    tasks = [asyncio.create_task(run(item)) for item in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
