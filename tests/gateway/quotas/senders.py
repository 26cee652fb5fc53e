"""Requests of tenants to gateways' quotas with a real server of Redis."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.core.tenants.limits import Usage
from penstock.core.tenants.quota import Reservation
from penstock.core.tenants.tenant import FailureMode, Tenant, UsageLimit
from penstock.gateway.quotas.quotas import Quotas

ONE = Usage(1, 60, 40)
HOURLY = UsageLimit("hourly", "Requests", 100, "Hour")
StartQuotas = Callable[..., Awaitable[Quotas]]


def tenant(*limits: UsageLimit, name: str = "team", mode: FailureMode = "Reject") -> Tenant:
    return Tenant(name, 1, limits=limits, failure_mode=mode)


async def reserve(quotas: Quotas, team: Tenant, usage: Usage = ONE) -> object:
    return await quotas.reserve(quotas.account(team), "chat", usage)


async def is_admitted(quotas: Quotas, team: Tenant, usage: Usage) -> bool:
    return isinstance(await reserve(quotas, team, usage), Reservation)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await condition():  # noqa: ASYNC110 - what is looked at has no events
            await asyncio.sleep(0.05)


async def send(quotas: Quotas, team: Tenant, number: int) -> int:
    """Reserve for requests, several at a time. Returns how many were admitted."""
    admitted = 0
    for _ in range(number // 10):
        found = await asyncio.gather(*(reserve(quotas, team) for _ in range(10)))
        admitted += sum(isinstance(each, Reservation) for each in found)
    return admitted


async def stored(quotas: Quotas, pattern: str = "penstock:count:*") -> int:
    """The sum of the counts in the store."""
    redis = quotas.store._reader  # type: ignore[union-attr]
    totals = [int(await redis.hget(key, "total")) for key in await redis.keys(pattern)]
    return sum(totals)


async def call(*gateways: Quotas) -> None:
    """Call the store, twice each: then each gateway knows what the others have told."""
    for each in 2 * gateways:
        assert each.sync is not None
        await each.sync.call()


def is_sharing(*gateways: Quotas) -> Callable[[], Awaitable[bool]]:
    """Whether gateways share limits by the store."""

    async def check() -> bool:
        return all(each.sync is not None and each.sync.is_sharing for each in gateways)

    return check
