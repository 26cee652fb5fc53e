"""Limits over several gateways with one store: a real server, which is frozen, killed and brought back."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from tests.gateway.quotas.conftest import CallCounts
from tests.gateway.quotas.senders import (
    HOURLY,
    StartQuotas,
    call,
    is_admitted,
    reserve,
    send,
    stored,
    tenant,
    until,
)
from tests.support.tools.redis_process import RedisProcess

from penstock.core.tenants.limits import NO_USAGE, Usage
from penstock.core.tenants.quota import Reservation, Shortage, TooLarge
from penstock.core.tenants.tenant import FailureMode, Tenant, UsageLimit
from penstock.gateway.quotas.ledger import ledger_key, read_entries
from penstock.gateway.quotas.quotas import Quotas
from penstock.gateway.quotas.store_call import Reply, StoreCall


async def test_four_gateways_admit_the_limit_and_no_more(start_quotas: StartQuotas) -> None:
    gateways = [await start_quotas() for _ in range(4)]
    team = tenant(HOURLY)
    admitted = sum(await asyncio.gather(*(send(each, team, 250) for each in gateways)))
    assert 96 <= admitted <= 100
    assert await stored(gateways[0]) <= 100


async def test_no_window_of_a_second_admits_more_than_the_limit(start_quotas: StartQuotas) -> None:
    gateways = [await start_quotas() for _ in range(4)]
    team = tenant(UsageLimit("burst", "Requests", 50, "Second"))
    admitted: Counter[int] = Counter()

    async def keep_sending(quotas: Quotas) -> None:
        until_s = time.monotonic() + 2.5
        while time.monotonic() < until_s:
            found = await reserve(quotas, team)
            if isinstance(found, Reservation):
                admitted[found._parts[0][1].start_s] += 1
            await asyncio.sleep(0.002)

    await asyncio.gather(*(keep_sending(each) for each in gateways))
    assert len(admitted) >= 3
    assert max(admitted.values()) <= 50


async def test_what_was_not_used_is_given_back(start_quotas: StartQuotas) -> None:
    first, second = await start_quotas(), await start_quotas()
    team = tenant(UsageLimit("tokens", "Tokens", 1000, "Day"))
    held = [await reserve(first, team, Usage(1, 60, 400)) for _ in range(2)]
    assert isinstance(await reserve(second, team, Usage(1, 60, 40)), Shortage)
    for each in held:
        assert isinstance(each, Reservation)
        each.settle(Usage(1, 60, 40))
    await until(lambda: is_admitted(second, team, Usage(1, 60, 740)))
    assert await stored(first) == 1000


async def test_use_beyond_the_estimate_is_counted(start_quotas: StartQuotas) -> None:
    quotas = await start_quotas()
    team = tenant(UsageLimit("tokens", "Tokens", 1000, "Day"))
    found = await reserve(quotas, team, Usage(1, 60, 40))
    assert isinstance(found, Reservation)
    found.settle(Usage(1, 60, 1200))
    quotas.accounts.note_change(quotas.account(team))

    async def is_counted() -> bool:
        return await stored(quotas) == 1260

    await until(is_counted)
    assert isinstance(await reserve(quotas, team), Shortage)


async def test_a_request_above_the_limit_asks_nothing_of_the_store(
    start_quotas: StartQuotas,
) -> None:
    quotas = await start_quotas()
    limit = UsageLimit("tokens", "Tokens", 50, "Day")
    assert await reserve(quotas, tenant(limit)) == TooLarge(limit, 100)


@pytest.mark.parametrize(("mode", "least", "most"), [("Reject", 20, 52), ("Admit", 500, 500)])
@pytest.mark.parametrize("harm", ["freeze", "kill"])
async def test_without_the_store_gateways_have_their_shares(
    start_quotas: StartQuotas,
    redis: RedisProcess,
    harm: str,
    mode: FailureMode,
    least: int,
    most: int,
) -> None:
    gateways = [await start_quotas() for _ in range(2)]
    await call(*gateways)
    team = tenant(HOURLY, mode=mode)
    assert await send(gateways[0], team, 50) == 50
    await call(*gateways)
    getattr(redis, harm)()
    admitted = sum(await asyncio.gather(*(send(each, team, 250) for each in gateways)))
    assert least <= admitted <= most


async def test_use_without_the_store_is_added_when_it_is_back(
    start_quotas: StartQuotas, redis: RedisProcess
) -> None:
    quotas = await start_quotas()
    team = tenant(HOURLY)
    assert await send(quotas, team, 20) == 20
    redis.kill()
    assert await send(quotas, team, 50) == 50
    redis.start()
    assert quotas.sync is not None
    sync = quotas.sync

    async def is_back() -> bool:
        return sync.is_sharing and await stored(quotas) >= 70

    await until(is_back)
    assert await send(quotas, team, 200) == 30
    assert await stored(quotas) == 100


async def test_running_requests_are_bounded_over_all_gateways(start_quotas: StartQuotas) -> None:
    gateways = [await start_quotas() for _ in range(3)]
    team = Tenant("team", 1, max_running=7)
    accounts = [each.account(team) for each in gateways]
    started = [
        (account, await quotas.start_running(account))
        for _ in range(5)
        for quotas, account in zip(gateways, accounts, strict=True)
    ]
    assert sum(is_running for _, is_running in started) == 7
    for account, is_running in started:
        if is_running:
            assert account.slots is not None
            account.slots.end()
    await until(lambda: gateways[2].start_running(accounts[2]))


async def test_the_ledger_has_each_request_once_though_calls_are_repeated(
    start_quotas: StartQuotas, redis: RedisProcess
) -> None:
    quotas = await start_quotas()
    assert quotas.sync is not None
    assert quotas.store is not None
    for _ in range(10):
        quotas.record("team", "default/chat", "", Usage(1, 60, 40, 20))
    redis.freeze()
    await quotas.sync.call()  # which the server executes when it goes on
    redis.thaw()
    quotas.record("team", "default/chat", "tuned", Usage(1, 6, 4))
    store, found = quotas.store, dict[tuple[str, str], Usage]()

    async def are_stored() -> bool:
        hour_s = int(quotas.now_s()) // 3600 * 3600
        (fields,) = await store.read([ledger_key(hour_s)])
        found.update({(a.service, a.adapter): u for a, u in read_entries(hour_s, fields).items()})
        return len(found) == 2

    await until(are_stored)
    assert found == {
        ("default/chat", ""): Usage(10, 600, 400, 200),
        ("default/chat", "tuned"): Usage(1, 6, 4, 0),
    }


async def test_a_gateway_that_ends_gives_all_back(
    start_quotas: StartQuotas,
) -> None:
    first, second = await start_quotas(), await start_quotas()
    limits = (UsageLimit("tokens", "Tokens", 1000, "Day"),)
    team = Tenant("team", 1, limits=limits, max_running=9)
    found = await reserve(first, team)
    assert isinstance(found, Reservation)
    account = first.account(team)
    assert await first.start_running(account)
    assert account.slots is not None
    account.slots.end()
    found.settle(NO_USAGE)
    assert first.sync is not None
    await first.sync.call(leaves=True)
    assert await stored(second) == 0
    redis = second.store._redis  # type: ignore[union-attr]
    assert await redis.keys("penstock:running:*") == []


async def test_without_a_store_a_gateway_has_its_share() -> None:
    quotas = Quotas(CallCounts(), time.monotonic, time.time, num_gateways=lambda: 4)
    assert await send(quotas, tenant(HOURLY), 100) == 25


async def test_calls_end_though_a_cancellation_is_lost() -> None:
    """A command of Redis's client that has been sent already can lose a cancellation."""

    class Careless:
        async def read(self, keys: Sequence[str]) -> list[Mapping[str, int]]:
            return []

        async def close(self) -> None:
            pass

        async def call(self, call: StoreCall) -> Reply:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            return Reply(0.0, 1)

    quotas = Quotas(CallCounts(), time.monotonic, time.time, store=Careless())
    calling = asyncio.create_task(quotas.run())
    assert quotas.sync is not None
    asking = asyncio.create_task(quotas.sync.next_answer())
    for _ in range(3):
        await asyncio.sleep(0)
    calling.cancel()
    async with asyncio.timeout(10):
        await asyncio.gather(calling, asking, return_exceptions=True)
