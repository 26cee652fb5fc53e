"""Requests of a tenant that come at the same time, and a bound that is set while some run."""

import asyncio
import time

import pytest
from tests.gateway.quotas.conftest import CallCounts
from tests.gateway.quotas.senders import ONE, StartQuotas, tenant

from penstock.core.routing.apis import CHAT
from penstock.core.tenants.limits import Usage
from penstock.core.tenants.quota import Reservation
from penstock.core.tenants.tenant import Tenant, UsageLimit
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.apis.request import parse
from penstock.gateway.quotas.quotas import Quotas
from penstock.gateway.quotas.request_quota import RequestQuota


async def test_bursts_below_the_limits_are_all_admitted(start_quotas: StartQuotas) -> None:
    """Requests that wait for the store get its grants, also if others arrive at the same time."""
    quotas = await start_quotas()
    limits = (
        UsageLimit("budget", "Tokens", 10**12, "Month"),
        UsageLimit("r", "Requests", 10**7, "Minute"),
    )
    teams = [Tenant(f"team-{n}", 1, limits=limits, max_running=10**4) for n in range(5)]
    refused: list[str] = []

    async def request(number: int) -> None:
        account = quotas.account(teams[number // 10 % len(teams)])
        found = await quotas.reserve(account, "chat", ONE)
        if not isinstance(found, Reservation):
            refused.append(repr(found))
        elif not await quotas.start_running(account):
            refused.append("no slot")
        else:
            await asyncio.sleep(number % 7 / 1000)
            assert account.slots is not None
            account.slots.end()
            found.settle(Usage(1, 60, 30))
            quotas.accounts.note_change(account)

    numbers = iter(range(2000))

    async def client() -> None:
        for number in numbers:
            await request(number)

    await asyncio.gather(*(client() for _ in range(16)))
    assert refused == []


async def test_requests_that_began_without_a_bound_free_no_slot() -> None:
    quotas = Quotas(CallCounts(), time.monotonic, time.time)
    request = parse(b'{"model": "chat", "messages": []}', CHAT)
    before = RequestQuota(quotas, tenant())
    await before.admit(request, 0)
    bounded = Tenant("team", 2, max_running=1)
    after = RequestQuota(quotas, bounded)
    await after.admit(request, 0)
    before.settle(None)
    with pytest.raises(RequestError, match="which is its limit"):
        await RequestQuota(quotas, bounded).admit(request, 0)
    after.settle(None)
    await RequestQuota(quotas, bounded).admit(request, 0)
