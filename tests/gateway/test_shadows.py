"""Copies of requests: answered by somebody else, dropped, and never felt by the caller."""

import asyncio
import json
from dataclasses import replace

import pytest

from penstock.adapters.feed import PATH, parse
from penstock.core.rollout.shares import Copies
from penstock.core.route import Match, RouteRule, Shadow
from penstock.core.routing import Side
from penstock.gateway.snapshot import Route, Snapshot

SHADOWS = "penstock_gateway_shadow_requests_total"


@pytest.fixture
async def shadowed(start_engine, start_gateway, make_service):
    """`await shadowed(behaviour)` -> a gateway, the engine that answers and the one that gets copies."""

    async def make(behaviour=None, shadow=None, **settings):
        main = await start_engine()
        other = await (start_engine(behaviour) if behaviour else start_engine())
        front = await start_gateway(**settings)
        shadow = shadow or Shadow("new", None, 100)
        rule = RouteRule(Match(), (("old", 1),), shadows=(shadow,))
        services = make_service(main, name="old"), make_service(other, name="new")
        front.fleet.publish(Snapshot(services, (Route("default", "route", "chat", 0, (rule,)),)))
        return front, main, other

    return make


async def idle(front, until):
    await front.idle()
    await until(lambda: not front.gateway.shared.shadows.open)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_copy_is_what_the_original_was(shadowed, until, stream):
    front, main, other = await shadowed()
    assert (await front.ask(stream=stream, prompt="Hi"))[0] == 200
    await until(lambda: other.requests)
    await idle(front, until)
    (original,), (copy,) = main.requests, other.requests
    assert json.loads(copy.body) == json.loads(original.body) | {"model": "new"}
    assert copy.headers["x-request-id"].startswith(f"{original.headers['x-request-id']}.copy-")
    assert copy.path == original.path
    assert await front.metric(SHADOWS, service="default/new", outcome="ok") == 1
    name = "penstock_gateway_shadow_time_to_first_byte_seconds_count"
    assert await front.metric(name, service="default/new", revision="r1") == 1
    assert await front.metric("penstock_gateway_requests_total", service="default/new") == 0


async def hangs(request):
    await asyncio.sleep(3600)


async def resets(request):
    request.reset()


async def breaks(request):
    await request.whole(b"{}", status="500 Internal Server Error")


async def cuts(request):
    await request.head()
    await request.chunk(b'data: {"n": 0}\n\n')
    request.reset()


@pytest.mark.parametrize("behaviour", [resets, breaks, cuts])
async def test_whatever_comes_of_it_is_not_the_callers(shadowed, until, behaviour):
    front, _, _ = await shadowed(behaviour)
    for _ in range(5):
        status, body = await front.ask()
        assert status == 200
        assert body.endswith(b"data: [DONE]\n\n")
    await idle(front, until)
    assert await front.metric(SHADOWS, outcome="error") == 5
    assert await front.metric("penstock_gateway_responses_total", code="200") == 5


async def test_one_that_hangs_holds_nothing_up_and_only_so_many_are_open(shadowed, until):
    front, _, other = await shadowed(hangs, max_shadows=2)
    answers = await asyncio.gather(*(front.ask() for _ in range(10)))
    assert [status for status, _ in answers] == [200] * 10
    await until(lambda: len(other.requests) == 2)
    assert front.gateway.shared.shadows.open == 2
    assert await front.metric(SHADOWS, outcome="dropped") == 8


async def test_one_that_is_gone(shadowed, until):
    front, _, other = await shadowed()
    await other.stop()
    assert (await front.ask())[0] == 200
    await idle(front, until)
    assert await front.metric(SHADOWS, outcome="error") == 1


@pytest.mark.parametrize("shadow", [Shadow("newer", None, 100), Shadow("new", "r9", 100)])
async def test_one_that_does_not_exist_is_counted(shadowed, until, shadow):
    front, _, other = await shadowed(shadow=shadow)
    assert (await front.ask())[0] == 200
    await idle(front, until)
    assert not other.requests
    assert await front.metric(SHADOWS, outcome="dropped") == 1


async def test_a_revision_without_traffic_can_be_shadowed(
    start_engine, start_gateway, make_service, until
):
    stable, candidate = await start_engine(), await start_engine(revision="r2")
    front = await start_gateway()
    rule = RouteRule(Match(), (("old", 1),), shadows=(Shadow("old", "r2", 100),))
    service = make_service(stable, candidate, name="old", weights={"r1": 100, "r2": 0})
    front.fleet.publish(Snapshot((service,), (Route("default", "r", "chat", 0, (rule,)),)))
    for _ in range(3):
        assert (await front.ask())[0] == 200
    await until(lambda: len(candidate.requests) == 3)
    assert len(stable.requests) == 3
    await idle(front, until)


async def test_the_copy_begins_after_the_original_is_answered(shadowed, until, start_engine):
    gate = asyncio.Event()

    async def slow(request):
        await gate.wait()
        await request.whole(b"{}")

    front, main, other = await shadowed()
    main.behaviour = slow
    asked = asyncio.create_task(front.ask(stream=False))
    await main.arrived.wait()
    await asyncio.sleep(0.05)
    assert not other.requests
    gate.set()
    await asked
    await until(lambda: other.requests)
    await idle(front, until)


@pytest.fixture
async def shown(start_engine, start_gateway, make_service):
    """`await shown(behaviour)` -> a gateway, stable's engine, and the one that a rollout shows copies."""

    async def make(behaviour=None, share=1.0):
        stable = await start_engine()
        new = await (start_engine(behaviour, "r2") if behaviour else start_engine(revision="r2"))
        front = await start_gateway()
        service = make_service(stable, new, weights={"r1": 100})
        front.show(replace(service, copies=Copies((Side("r2"),), share)))
        return front, stable, new

    return make


async def arm_of(front, engine):
    async with front.client.get(front.url + PATH) as got:
        return parse("g", await got.text()).arms["default/chat"].get(f"default/{engine.name}")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_rollout_shows_its_canary_copies_and_counts_them(shown, until, path, stream):
    front, stable, new = await shown()
    for _ in range(3):
        assert (await front.ask(path, stream=stream))[0] == 200
    await until(lambda: len(new.requests) == 3)
    await idle(front, until)
    arm = await arm_of(front, new)
    assert (arm.requests, arm.errors) == (3, 0)
    assert sum(m.n for m in arm.ttft) == 0  # its load is not stable's
    assert len(stable.requests) == 3


@pytest.mark.parametrize("behaviour", [resets, breaks, cuts])
async def test_a_copy_that_fails_is_the_canarys_error_and_nobody_elses(shown, until, behaviour):
    front, stable, new = await shown(behaviour)
    for _ in range(3):
        assert (await front.ask())[0] == 200
    await until(lambda: len(new.requests) == 3)
    await idle(front, until)
    assert (await arm_of(front, new)).errors == 3
    assert (await arm_of(front, stable)).errors == 0


async def test_only_a_share_is_copied(shown, until):
    front, _, new = await shown(share=0.0)
    for _ in range(5):
        await front.ask()
    await idle(front, until)
    assert not new.requests
