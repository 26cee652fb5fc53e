"""Gateways' quotas with a real server of Redis."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.support.tools.redis_process import RedisProcess, redis_process

from penstock.clients.machine.clock import monotonic
from penstock.core.tenants.limits import Usage
from penstock.gateway.quotas.quotas import Quotas
from penstock.gateway.quotas.redis_store import RedisStore

# Time limit of a call: tests are about counts, on machines that are busy.
CALL_TIMEOUT_S = 1.0


class CallCounts:
    """Counts calls of the store."""

    def __init__(self) -> None:
        self.num_calls = self.num_failed = 0

    def note_call(self, seconds: float, *, is_failed: bool) -> None:
        self.num_calls += 1
        self.num_failed += is_failed

    def count_usage(self, tenant: str, service: str, usage: Usage) -> None:
        pass


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    with redis_process(tmp_path) as server:
        yield server


@pytest.fixture
async def start_quotas(
    redis: RedisProcess,
) -> AsyncIterator[Callable[..., Awaitable[Quotas]]]:
    """`await start_quotas()`: the quotas of one more gateway, whose calls run in the background."""
    running: list[tuple[Quotas, asyncio.Task[None]]] = []

    async def start(wall_clock: Callable[[], float] | None = None) -> Quotas:
        store = RedisStore(redis.url, f"gateway-{len(running)}", timeout_s=CALL_TIMEOUT_S)
        clock = (lambda: 0.0) if wall_clock is None else wall_clock
        quotas = Quotas(CallCounts(), monotonic, clock, store=store, retention_s=86_400 * 400)
        assert quotas.sync is not None
        await quotas.sync.call()
        running.append((quotas, asyncio.create_task(quotas.run())))
        return quotas

    yield start
    redis.thaw()
    for quotas, task in running:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await quotas.close()
