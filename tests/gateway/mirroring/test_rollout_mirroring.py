"""Copies that a rollout sends to its canary before it has traffic, counted for the judge."""

import asyncio
import math
from dataclasses import replace

import pytest
from tests.gateway.engine_answers import (
    DONE,
    EVENT,
    begins,
    breaks,
    cuts,
    hangs,
    resets,
    stream,
    whole,
)

from penstock.clients.pods.stats_report import PATH, parse
from penstock.core.canary.moments import Moments
from penstock.core.routing.pick import Endpoint, Side
from penstock.core.routing.route import RouteRule
from penstock.core.routing.traffic_split import RolloutMirror
from penstock.gateway.snapshots.snapshot import Route, Snapshot


@pytest.fixture
async def mirrored(start_engine, start_gateway, make_service):
    """`await mirrored(behavior)` -> a gateway, the stable engine, and the canary engine that gets copies."""

    async def make(behavior=None, percent=100):
        stable = await start_engine()
        new = await (start_engine(behavior, "r2") if behavior else start_engine(revision="r2"))
        front = await start_gateway()
        service = make_service(stable, new, weights={"r1": 100})
        front.publish(replace(service, mirror=RolloutMirror((Side("r2"),), percent)))
        return front, stable, new

    return make


async def arm_of(front, engine):
    async with front.client.get(front.management_url + PATH) as got:
        return parse("g", await got.text()).arms["default/chat"].get(f"default/{engine.name}")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("stream", [True, False])
async def test_copies_for_a_canary_are_counted_for_its_judge(mirrored, until, path, stream):
    front, stable, new = await mirrored()
    for _ in range(3):
        assert (await front.ask(path, stream=stream))[0] == 200
    await until(lambda: len(new.requests) == 3)
    await front.idle_with_copies()
    arm = await arm_of(front, new)
    assert (arm.requests, arm.errors) == (3, 0)
    assert sum(m.n for m in arm.ttft) == 0  # latency of copies does not count: their load differs
    assert len(stable.requests) == 3


@pytest.mark.parametrize("behavior", [resets, breaks, cuts])
async def test_failed_copy_is_an_error_of_the_canary_alone(mirrored, until, behavior):
    front, stable, new = await mirrored(behavior)
    for _ in range(3):
        assert (await front.ask())[0] == 200
    await until(lambda: len(new.requests) == 3)
    await front.idle_with_copies()
    assert (await arm_of(front, new)).errors == 3
    assert (await arm_of(front, stable)).errors == 0


async def test_copy_to_an_engine_that_is_gone_is_no_error(mirrored):
    """Containers restart and nodes are lost with any revision."""
    front, _, new = await mirrored()
    await new.stop()
    assert (await front.ask())[0] == 200
    await front.idle_with_copies()
    assert (await arm_of(front, new)).errors == 0
    mirrored_requests = "penstock_gateway_mirrored_requests_total"
    assert await front.metric(mirrored_requests, outcome="error") == 1


async def test_share_zero_copies_nothing(mirrored):
    front, _, new = await mirrored(percent=0)
    for _ in range(5):
        await front.ask()
    await front.idle_with_copies()
    assert not new.requests


USAGE = b'{"choices":[{"text":"x"}],"usage":{"prompt_tokens":9,"completion_tokens":%d}}'


@pytest.mark.parametrize(
    ("behavior", "is_stream", "requests", "errors", "empty", "tokens"),
    [
        (whole(USAGE % 5), False, 1, 0, 0, 5),
        (whole(b'{"choices":[{"text":""}]}'), False, 1, 0, 1, 6),
        (
            stream(EVENT, EVENT[:9], EVENT[9:], EVENT, DONE),
            True,
            1,
            0,
            0,
            2,
        ),  # the first event of a chat is no token
        (stream(EVENT.replace(b'"a"', b'""'), DONE), True, 1, 0, 1, 1),
        (stream(EVENT, b'data: {"error": {"code": 500}}\n\n', DONE), True, 1, 1, 0, None),
        (stream(EVENT, EVENT), True, 1, 1, 0, None),  # without DONE
        (whole(b"{}", "399 Odd"), False, 1, 0, 1, 1),
        (whole(b"{}", "400 Bad Request"), False, 0, 0, 0, None),
        (whole(b"{}", "400 Bad Request"), True, 0, 0, 0, None),
        (whole(b"{}", "499 Odd"), True, 0, 0, 0, None),
        (whole(b"{}", "500 Internal Server Error"), False, 1, 1, 0, None),
        (whole(b"{}", "501 Not Implemented"), False, 0, 0, 0, None),
        (stream(b'data: {"error": {"code": 400}}\n\n', DONE), True, 1, 0, 0, 1),
    ],
)
async def test_counts_of_a_copy(
    mirrored, until, behavior, is_stream, requests, errors, empty, tokens
):
    front, _, new = await mirrored(behavior)
    await front.ask("/v1/chat/completions", stream=is_stream)
    await until(lambda: new.requests)
    await front.idle_with_copies()
    arm = await arm_of(front, new)
    assert (arm.requests, arm.errors, arm.empty_outputs) == (requests, errors, empty)
    assert (arm.violations, arm.prompt_tokens) == (errors, 0)
    output = [] if tokens is None else [math.log(tokens)]
    assert arm.output == Moments.of(output)
    assert arm.missed[0].n == len(output)


@pytest.mark.parametrize(
    ("path", "tokens"),
    [("/v1/chat/completions?a=1", 3), ("/v1/completions?a=/v1/chat/completions", 4)],
)
async def test_overhead_events_of_a_copy_are_no_tokens(mirrored, until, path, tokens):
    front, _, new = await mirrored(stream(EVENT, EVENT, EVENT, EVENT, DONE))
    await front.ask(path)
    await until(lambda: new.requests)
    await front.idle_with_copies()
    assert (await arm_of(front, new)).output == Moments.of([math.log(tokens)])
    assert new.requests[0].path == path


async def test_time_to_the_first_byte_of_a_copy(start_engine, start_gateway, make_service, until):
    """The first byte alone is timed, by the gateway's clock."""
    now_s = 1000.0

    async def slow(request):
        nonlocal now_s
        now_s += 3.0
        await request.head()
        for _ in range(3):
            await request.chunk(EVENT)
            await asyncio.sleep(0.02)
        await request.chunk(DONE)
        await request.end()

    stable, new = await start_engine(), await start_engine(slow, "r2")
    front = await start_gateway(now=lambda: now_s)
    service = make_service(stable, new, weights={"r1": 100})
    front.publish(replace(service, mirror=RolloutMirror((Side("r2"),), 100)))
    assert (await front.ask())[0] == 200
    await until(lambda: new.requests)
    await front.idle_with_copies()
    name = "penstock_gateway_mirrored_time_to_first_byte_seconds"
    labels = {"service": "default/chat", "revision": "r2"}
    assert await front.metric(f"{name}_sum", **labels) == 3.0
    assert await front.metric(f"{name}_count", **labels) == 1
    assert await front.metric(f"{name}_count") == 1


async def test_copy_to_a_lost_node_is_no_error(
    start_engine, start_gateway, make_service, stuck_address
):
    """Its connection is not refused: it does not come about."""
    stable = await start_engine()
    front = await start_gateway(connect_timeout_s=0.05)
    service = make_service(stable, weights={"r1": 100})
    lost = Endpoint("default/lost", stuck_address, "r2")
    front.publish(
        replace(
            service,
            endpoints=(*service.endpoints, lost),
            sides={**service.sides, lost.pod: lost.side},
            mirror=RolloutMirror((lost.side,), 100),
        )
    )
    assert (await front.ask())[0] == 200
    await front.idle_with_copies()
    async with front.client.get(front.management_url + PATH) as got:
        arms = parse("g", await got.text()).arms["default/chat"]
    assert arms[lost.pod].errors == 0
    mirrored_requests = "penstock_gateway_mirrored_requests_total"
    assert await front.metric(mirrored_requests, outcome="error", revision="r2") == 1


@pytest.mark.parametrize("behavior", [hangs, begins])
@pytest.mark.parametrize(("timeout_s", "errors"), [(0.3, 0), (None, 1)])
async def test_time_limit_of_a_route_is_no_error_of_the_canary(
    start_engine, start_gateway, make_service, behavior, timeout_s, errors
):
    stable, new = await start_engine(), await start_engine(behavior, "r2")
    limits = {"first_byte_timeout_s": 0.5, "between_chunks_timeout_s": 0.5}
    front = await start_gateway(synced=False, **limits)
    service = make_service(stable, new, name="old", weights={"r1": 100})
    service = replace(service, mirror=RolloutMirror((Side("r2"),), 100))
    rule = RouteRule((), (("old", 1),), timeout_s=timeout_s)
    front.snapshots.publish(Snapshot((service,), (Route("default", "any", "chat", 0, (rule,)),)))
    assert (await front.ask())[0] == 200
    await front.idle_with_copies()
    async with front.client.get(front.management_url + PATH) as got:
        arm = parse("g", await got.text()).arms["default/old"][new.endpoint().pod]
    assert arm.errors == errors
