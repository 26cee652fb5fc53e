"""Values in the store that no gateway wrote, a store that loses data, and one that goes unexpectedly."""

import asyncio
import contextlib
import shutil
from typing import Any

import pytest
from redis.exceptions import RedisError
from tests.gateway.quotas.senders import (
    HOURLY,
    ONE,
    StartQuotas,
    call,
    is_admitted,
    is_sharing,
    reserve,
    send,
    stored,
    tenant,
    until,
)
from tests.support.tools.redis_process import RedisProcess

from penstock.core.tenants.limits import Usage
from penstock.core.tenants.quota import Reservation
from penstock.core.tenants.tenant import FailureMode, Tenant, UsageLimit
from penstock.gateway.quotas.ledger import ledger_key, read_entries
from penstock.gateway.quotas.quotas import Quotas

OTHER = UsageLimit("other", "Requests", 40, "Hour")


def client(quotas: Quotas) -> Any:
    """The client of the store, for values that no gateway writes."""
    return quotas.store._reader  # type: ignore[union-attr]


def key_of(quotas: Quotas, limit: str) -> str:
    hour_s = int(quotas.now_s()) // 3600 * 3600
    return f"penstock:count:team:{limit}:Requests:Hour:{hour_s + 3600}"


async def write(quotas: Quotas, key: str, value: str) -> None:
    """Write a value: one without a name is a string, the others are fields of a hash."""
    name, _, text = value.partition("=")
    if text:
        await client(quotas).hset(key, name, text)
    else:
        await client(quotas).set(key, name)


@pytest.mark.parametrize("value", ["12", "total=many", "total=nan", "total=inf", "total=1.5"])
@pytest.mark.parametrize(("mode", "admitted"), [("Reject", 50), ("Admit", 60)])
async def test_a_bad_value_fails_one_limit_by_its_mode(
    start_quotas: StartQuotas, value: str, mode: FailureMode, admitted: int
) -> None:
    first, second = await start_quotas(), await start_quotas()
    await call(first, second)
    key = key_of(first, "hourly")
    await write(first, key, value)
    assert await send(first, tenant(HOURLY, mode=mode), 60) == admitted
    assert await send(first, tenant(HOURLY, name="others"), 120) >= 96
    assert first.sync is not None
    assert first.sync.is_up
    await client(first).delete(key)
    redis, team = client(first), tenant(HOURLY, mode=mode)

    async def is_counted() -> bool:
        return int(await redis.hget(key, "total") or 0) >= admitted

    await until(is_counted)
    await send(second, team, 100)
    assert int(await redis.hget(key, "total")) == 100


async def test_a_bad_value_of_one_limit_leaves_the_tenants_others(
    start_quotas: StartQuotas,
) -> None:
    first, second = await start_quotas(), await start_quotas()
    await call(first, second)
    await write(first, key_of(first, "hourly"), "12")
    assert await send(first, tenant(HOURLY, OTHER, mode="Admit"), 100) == 40


@pytest.mark.parametrize("value", ["12", "gateway-0=many", "gateway-9=nan"])
async def test_a_bad_value_of_running_requests_fails_these_alone(
    start_quotas: StartQuotas, value: str
) -> None:
    first, second = await start_quotas(), await start_quotas()
    await call(first, second)
    team, key = Tenant("team", 1, max_running=6), "penstock:running:team"
    await write(first, key, value)
    started = [await first.start_running(first.account(team)) for _ in range(5)]
    assert sum(started) == 3, "its half"
    others = second.account(Tenant("others", 1, max_running=6))
    assert all([await second.start_running(others) for _ in range(6)])
    await client(first).delete(key)
    await until(lambda: first.start_running(first.account(team)))


@pytest.mark.parametrize("is_hash", [True, False])
async def test_a_bad_value_in_the_ledger_loses_no_usage(
    start_quotas: StartQuotas, is_hash: bool
) -> None:
    quotas = await start_quotas()
    hour_s = int(quotas.now_s()) // 3600 * 3600
    key = ledger_key(hour_s)
    name = "team\tdefault/chat\t\trequests"
    await write(quotas, f"penstock:{key}", f"{name}=many" if is_hash else "12")
    quotas.record("team", "default/chat", "", Usage(1, 60, 40))
    await call(quotas)
    if is_hash:
        await client(quotas).hset(f"penstock:{key}", "of somebody else", 1)
        await client(quotas).hdel(f"penstock:{key}", name)
    else:
        await client(quotas).delete(f"penstock:{key}")
    await call(quotas)
    assert quotas.store is not None
    (fields,) = await quotas.store.read([key])
    assert list(read_entries(hour_s, fields).values()) == [Usage(1, 60, 40)]


async def test_keys_of_others_stay_as_they_are(start_quotas: StartQuotas) -> None:
    quotas = await start_quotas()
    others = {"count:team": "1", "penstock2:gateways": "2", "penstock:unknown": "3"}
    await client(quotas).mset(others)
    await send(quotas, tenant(HOURLY), 50)
    quotas.record("team", "default/chat", "", ONE)
    await call(quotas)
    assert await client(quotas).mget(list(others)) == list(others.values())


async def test_a_server_that_lost_its_data_is_told_again(
    start_quotas: StartQuotas, redis: RedisProcess
) -> None:
    first, second = await start_quotas(), await start_quotas()
    await call(first, second)
    team = tenant(HOURLY)
    assert await send(first, team, 40) + await send(second, team, 40) == 80
    redis.kill()
    shutil.rmtree(redis.folder / "appendonlydir")
    redis.start()
    sharing = is_sharing(first, second)

    async def are_counted() -> bool:
        with contextlib.suppress(RedisError):  # a connection to the server that was killed
            return await sharing() and await stored(first) >= 80
        return False

    await until(are_counted)
    more = await asyncio.gather(send(first, team, 100), send(second, team, 100))
    assert 16 <= sum(more) <= 20
    assert await stored(first) <= 100


async def test_gateways_that_had_used_nothing_know_what_the_others_have(
    start_quotas: StartQuotas, redis: RedisProcess
) -> None:
    gateways = [await start_quotas() for _ in range(4)]
    team, limit = tenant(HOURLY), HOURLY.limit
    admitted = await send(gateways[0], team, 200)
    await call(*gateways)
    redis.kill()
    admitted += sum(await asyncio.gather(*(send(each, team, 100) for each in gateways[1:])))
    assert limit - 4 <= admitted <= limit


async def test_running_requests_of_others_are_known_without_the_store(
    start_quotas: StartQuotas, redis: RedisProcess
) -> None:
    gateways = [await start_quotas() for _ in range(3)]
    team = Tenant("team", 1, max_running=6)
    for _ in range(6):
        assert await gateways[0].start_running(gateways[0].account(team))
    await call(*gateways)
    redis.kill()
    for each in gateways[1:]:
        assert not await each.start_running(each.account(team))


async def test_a_call_that_was_given_up_is_counted_once(
    start_quotas: StartQuotas, redis: RedisProcess
) -> None:
    """A frozen server executes it when it goes on, and grants a piece that nobody gets."""
    quotas = await start_quotas()
    team = tenant(HOURLY)
    assert await send(quotas, team, 20) == 20
    redis.freeze()
    assert isinstance(await reserve(quotas, team), Reservation)
    redis.thaw()
    await until(is_sharing(quotas))
    admitted = 21 + await send(quotas, team, 200)
    await call(quotas)
    assert (admitted, await stored(quotas)) == (100, 100)
    assert not await is_admitted(quotas, team, ONE)


@pytest.mark.parametrize("harm", ["freeze", "kill"])
async def test_all_gateways_together_admit_the_limit_through_an_outage(
    start_quotas: StartQuotas, redis: RedisProcess, harm: str
) -> None:
    gateways = [await start_quotas() for _ in range(4)]
    await call(*gateways)
    team = tenant(UsageLimit("hourly", "Requests", 400, "Hour"))

    async def send_to_all(number: int) -> int:
        return sum(await asyncio.gather(*(send(each, team, number) for each in gateways)))

    admitted = await send_to_all(20)
    await call(*gateways)
    getattr(redis, harm)()
    admitted += await send_to_all(120)
    assert admitted <= 400
    redis.thaw() if harm == "freeze" else redis.start()
    await until(is_sharing(*gateways))
    admitted += await send_to_all(120)
    assert admitted <= 400
