"""Requests that wait while their service, adapter or route's backend is deleted: answered as a new one is."""

import asyncio
import json
from dataclasses import replace

import pytest
from tests.gateway.adapters.adapter_engine import adapter
from tests.gateway.adapters.test_routes import route
from tests.gateway.support.services import service
from tests.support.gateway_snapshots import build

from penstock.gateway.snapshots.snapshot import Snapshot

CHAT, OTHER = service(), service(name="other")
POOL = replace(service(name="own"), adapter="sql")
NEWER = service(namespace="newer", created_s=9_000_000_000)
SQL, NEWER_SQL = adapter("sql"), adapter("sql", namespace="newer", day=2)
NOBODY = (404, "model_not_found", None)
SERVICE_MISSING = (503, "service_missing", "5")
ROUTE_BROKEN = (503, "route_broken", "5")
MOVED = (503, 503, "1")


def snapshot(*services, adapters=(), to=(), pool=""):
    """A snapshot with these services.

    to: backends of the route `any`. pool: key of the service that serves the adapters; empty: their own.
    """
    read = build([], [], [route(*to)] if to else [], adapters)
    found = [replace(each, service=pool or each.service) for each in read.adapters]
    return Snapshot(services, read.routes, tuple(found))


async def wait_and_publish(front, until, model, before, after):
    """Status, code and Retry-After of a request that waits when the second snapshot replaces the first."""
    front.snapshots.publish(before)

    async def ask():
        async with front.post(model=model) as got:
            error = (await got.json())["error"]
            return (got.status, error["code"], got.headers.get("retry-after")), error

    asking = asyncio.create_task(ask())
    await until(lambda: front.gateway.state.waiting == 1)
    front.snapshots.publish(after)
    return await asking


@pytest.mark.parametrize(
    ("model", "before", "after", "answer"),
    [
        pytest.param("chat", snapshot(CHAT), snapshot(OTHER), NOBODY, id="service"),
        pytest.param("chat", snapshot(CHAT, NEWER), snapshot(NEWER), MOVED, id="older service"),
        pytest.param(
            "sql", snapshot(CHAT, adapters=[SQL]), snapshot(adapters=[SQL]), SERVICE_MISSING,
            id="service of an adapter",
        ),
        pytest.param(
            "sql", snapshot(CHAT, POOL, adapters=[SQL], pool=POOL.key), snapshot(adapters=[SQL]),
            SERVICE_MISSING, id="pool and service of an adapter",
        ),
        pytest.param(
            "sql", snapshot(CHAT, NEWER, adapters=[SQL, NEWER_SQL]),
            snapshot(NEWER, adapters=[SQL, NEWER_SQL]), SERVICE_MISSING, id="service of the older adapter",
        ),
        pytest.param(
            "sql", snapshot(CHAT, NEWER, adapters=[SQL, NEWER_SQL]),
            snapshot(CHAT, NEWER, adapters=[NEWER_SQL]), MOVED, id="older adapter",
        ),
        pytest.param("sql", snapshot(CHAT, adapters=[SQL]), snapshot(CHAT), NOBODY, id="adapter"),
        pytest.param(
            "any", snapshot(CHAT, to=[{"name": "chat"}]), snapshot(to=[{"name": "chat"}]),
            ROUTE_BROKEN, id="service of a route",
        ),
        pytest.param(
            "any", snapshot(CHAT, to=[{"name": "chat"}]), snapshot(OTHER, to=[{"name": "other"}]),
            MOVED, id="former service of a route",
        ),
    ],
)  # fmt: skip
async def test_a_waiting_request_is_answered_as_a_new_one(
    until, start_gateway, model, before, after, answer
):
    front = await start_gateway()
    got, error = await wait_and_publish(front, until, model, before, after)
    assert got == answer
    if answer == MOVED:
        assert (error["type"], error["message"]) == (
            "overloaded_error",
            f"another service or adapter answers for the model `{model}` now: send the request again",
        )
        return
    async with front.post(model=model) as new:
        assert (await new.json())["error"] == error
    assert (new.status, new.headers.get("retry-after")) == (got[0], got[2])


async def test_a_request_that_is_sent_again_is_served_by_the_other_service(
    until, start_engine, start_gateway, make_service
):
    front, engine = await start_gateway(), await start_engine()
    newer = replace(make_service(engine), namespace="newer", created_s=9)
    got, _ = await wait_and_publish(
        front, until, "chat", Snapshot((CHAT, newer)), Snapshot((newer,))
    )
    assert got == MOVED
    assert (await front.ask())[0] == 200


async def test_a_deletion_is_no_lack_of_engines(until, start_gateway):
    """The service of the adapter sheds nothing, and what the request held is free again."""
    front = await start_gateway()
    after = snapshot(CHAT, NEWER, adapters=[NEWER_SQL])
    got, _ = await wait_and_publish(
        front, until, "sql", snapshot(CHAT, NEWER, adapters=[SQL, NEWER_SQL]), after
    )
    assert got == MOVED
    assert await front.metric("penstock_gateway_rejections_total", reason="model_moved") == 1
    await front.idle()
    state = front.gateway.state
    reading = state.stats.report(after).services[CHAT.key]
    assert (reading.arrivals, reading.queued, reading.shed, reading.failed) == (1, 0, 0, 0)
    assert (state.limits.connections.held, state.limits.body_bytes.held) == (0, 0)
    assert state.open_requests.total == 0


async def test_a_service_that_is_created_again_at_once_keeps_its_requests(
    until, start_engine, start_gateway, make_service
):
    """No request sees a snapshot without the service."""
    front, engine = await start_gateway(), await start_engine()
    front.publish(CHAT)
    asking = asyncio.create_task(front.ask())
    await until(lambda: front.gateway.state.waiting == 1)
    front.publish()
    front.publish(make_service(engine))
    status, body = await asking
    assert status == 200, json.loads(body)
