"""Copies of requests: answered by somebody else, dropped, and never felt by the caller."""

import asyncio
import json
import math
from dataclasses import replace

import pytest

from penstock.clients.feed import PATH, parse
from penstock.core.canary.moments import Moments
from penstock.core.routing.pick import Side
from penstock.core.routing.route import Match, RouteRule, Shadow
from penstock.core.routing.traffic_split import Copies
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


USAGE = b'{"choices":[{"text":"x"}],"usage":{"prompt_tokens":9,"completion_tokens":%d}}'
SAID = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


def whole(body, status="200 OK"):
    return lambda request: request.whole(body, status)


def stream(*chunks):
    async def behave(request):
        await request.head()
        for chunk in chunks:
            await request.chunk(chunk)
        await request.end()

    return behave


@pytest.mark.parametrize(
    ("behaviour", "is_stream", "requests", "errors", "empty", "tokens"),
    [
        (whole(USAGE % 5), False, 1, 0, 0, 5),
        (whole(b'{"choices":[{"text":""}]}'), False, 1, 0, 1, 6),
        (
            stream(SAID, SAID[:9], SAID[9:], SAID, DONE),
            True,
            1,
            0,
            0,
            2,
        ),  # a chat's first one opens it
        (stream(SAID.replace(b'"a"', b'""'), DONE), True, 1, 0, 1, 1),
        (stream(SAID, b'data: {"error": {"code": 500}}\n\n', DONE), True, 1, 1, 0, None),
        (stream(SAID, SAID), True, 1, 1, 0, None),  # without its last word
        (whole(b"{}", "399 Odd"), False, 1, 0, 1, 1),
        (whole(b"{}", "400 Bad Request"), False, 0, 0, 0, None),
        (whole(b"{}", "400 Bad Request"), True, 0, 0, 0, None),
        (whole(b"{}", "499 Odd"), True, 0, 0, 0, None),
        (whole(b"{}", "500 Internal Server Error"), False, 1, 1, 0, None),
    ],
)
async def test_what_a_copy_is_counted_as(
    shown, until, behaviour, is_stream, requests, errors, empty, tokens
):
    front, _, new = await shown(behaviour)
    await front.ask("/v1/chat/completions", stream=is_stream)
    await until(lambda: new.requests)
    await idle(front, until)
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
async def test_the_events_of_a_copy_that_are_no_tokens(shown, until, path, tokens):
    front, _, new = await shown(stream(SAID, SAID, SAID, SAID, DONE))
    await front.ask(path)
    await until(lambda: new.requests)
    await idle(front, until)
    assert (await arm_of(front, new)).output == Moments.of([math.log(tokens)])
    assert new.requests[0].path == path


@pytest.mark.parametrize(
    ("behaviour", "is_stream", "outcome"),
    [
        (whole(b"{}", "399 Odd"), False, "ok"),
        (whole(b"{}", "399 Odd"), True, "error"),  # it has no last word
        (whole(b"{}", "400 Bad Request"), True, "error"),
        (stream(SAID, b"data: [DONE]"), True, "ok"),
        (stream(SAID), True, "error"),
        (stream(SAID + DONE), True, "ok"),
    ],
)
async def test_the_outcome_of_a_copy(shadowed, until, behaviour, is_stream, outcome):
    front, _, other = await shadowed(behaviour)
    await front.ask(stream=is_stream)
    await until(lambda: other.requests)
    await idle(front, until)
    labels = {"service": "default/new", "revision": "r1"}
    assert await front.metric(SHADOWS, outcome=outcome, **labels) == 1
    assert await front.metric(SHADOWS) == 1


@pytest.mark.parametrize(
    ("shadow", "service", "revision"),
    [
        (Shadow("newer", None, 100), "default/newer", ""),
        (Shadow("newer", "r5", 100), "default/newer", "r5"),
        (Shadow("new", "r9", 100), "default/new", "r9"),
    ],
)
async def test_a_copy_that_nobody_can_take_is_counted_as_it_was_wanted(
    shadowed, until, shadow, service, revision
):
    front, _, _ = await shadowed(shadow=shadow)
    await front.ask()
    await idle(front, until)
    labels = {"service": service, "revision": revision, "outcome": "dropped"}
    async with front.client.get(front.url + "/metrics") as got:
        lines = [line for line in (await got.text()).splitlines() if line.startswith(SHADOWS)]
    inside = ",".join(f'{name}="{labels[name]}"' for name in ("outcome", "revision", "service"))
    assert lines == [f"{SHADOWS}{{{inside}}} 1.0"]


@pytest.mark.parametrize("length", [5, 100, 101, 128])
async def test_the_id_of_a_copy_fits(shadowed, until, length):
    front, _, other = await shadowed()
    given = "x" * length
    url, body = front.url + "/v1/completions", {"model": "chat"}
    async with front.client.post(url, json=body, headers={"x-request-id": given}) as got:
        await got.read()
    await until(lambda: other.requests)
    copied, _, own = other.requests[0].headers["x-request-id"].partition(".copy-")
    assert (copied, len(own)) == (given[:100], 8)
    await idle(front, until)


async def test_a_copy_that_takes_too_long_is_an_error(shadowed, until):
    front, _, other = await shadowed(hangs, total_timeout_s=0.3)
    await front.ask()
    await until(lambda: other.requests)
    await idle(front, until)
    assert await front.metric(SHADOWS, outcome="error") == 1
    assert front.gateway.shared.bodies.held_bytes == 0


async def test_a_copy_is_not_sent_elsewhere(shadowed, until):
    """Nor are its cookies and its keys."""

    async def redirects(request):
        location = f"location: http://{request.headers['host']}/other\r\nset-cookie: a=b\r\n"
        await request.whole(b"", "302 Found", location)

    front, _, other = await shadowed(redirects)
    url, body = front.url + "/v1/completions", {"model": "chat"}
    for number in (1, 2):
        headers = {"authorization": "Bearer x", "x-tag": "y"}
        async with front.client.post(url, json=body, headers=headers) as got:
            await got.read()
        await until(lambda number=number: len(other.requests) == number)
        await idle(front, until)
    assert [request.path for request in other.requests] == ["/v1/completions"] * 2
    for request in other.requests:
        assert not {"authorization", "cookie", "accept-encoding"} & set(request.headers)
        assert request.headers["x-tag"] == "y"
    assert await front.metric(SHADOWS, outcome="ok") == 2
    assert len({request.writer for request in other.requests}) == 1  # one connection for both


async def test_how_long_the_first_byte_of_a_copy_took(
    start_engine, start_gateway, make_service, until
):
    """By the gateway's clock, of its first byte alone."""
    now_s = 1000.0

    async def slow(request):
        nonlocal now_s
        now_s += 3.0
        await request.head()
        for _ in range(3):
            await request.chunk(SAID)
            await asyncio.sleep(0.02)
        await request.chunk(DONE)
        await request.end()

    stable, new = await start_engine(), await start_engine(slow, "r2")
    front = await start_gateway(now=lambda: now_s)
    service = make_service(stable, new, weights={"r1": 100})
    front.show(replace(service, copies=Copies((Side("r2"),), 1.0)))
    assert (await front.ask())[0] == 200
    await until(lambda: new.requests)
    await idle(front, until)
    name = "penstock_gateway_shadow_time_to_first_byte_seconds"
    labels = {"service": "default/chat", "revision": "r2"}
    assert await front.metric(f"{name}_sum", **labels) == 3.0
    assert await front.metric(f"{name}_count", **labels) == 1
    assert await front.metric(f"{name}_count") == 1


async def test_several_copies_are_under_way_at_once(shadowed, until):
    front, _, other = await shadowed(hangs, max_shadows=3)
    for _ in range(4):
        assert (await front.ask())[0] == 200
    await until(lambda: other.active == 3)
    await front.idle()
    assert front.gateway.shared.shadows.open == 3
    assert await front.metric(SHADOWS, outcome="dropped", revision="") == 1
    await front.gateway.shared.shadows.close()
    assert front.gateway.shared.shadows.open == 0
    await until(lambda: not other.active)


@pytest.mark.parametrize(("more", "outcome"), [(0, "ok"), (1, "dropped")])
async def test_a_copy_for_which_there_is_no_memory_is_dropped(shadowed, until, more, outcome):
    """Other requests may take the memory while the original is answered."""
    front, main, other = await shadowed(max_held_body_bytes=5000)
    bodies = front.gateway.shared.bodies

    async def fills_memory(request):
        others_bytes = 5000 - len(request.body) + more
        bodies.held_bytes += others_bytes
        await request.whole(b"{}")
        await front.idle()
        await until(lambda: not front.gateway.shared.shadows.open)
        bodies.held_bytes -= others_bytes

    main.behaviour = fills_memory
    await front.ask(stream=False, padding="x" * 2000)
    await until(lambda: not main.active)
    assert await front.metric(SHADOWS, outcome=outcome) == 1
    assert len(other.requests) == 1 - more
    assert bodies.held_bytes == 0
