"""Copies of requests for the mirrors of a ModelRoute, which never affect the original."""

import asyncio
import json
import random

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

from penstock.core.routing.route import Mirror, RouteRule
from penstock.gateway.snapshots.snapshot import Route, Snapshot

MIRRORED = "penstock_gateway_mirrored_requests_total"


@pytest.fixture
async def mirrored(start_engine, start_gateway, make_service):
    """`await mirrored(behavior)` -> a gateway, the engine that answers, and the engine that gets copies."""

    async def make(behavior=None, mirror=None, **settings):
        main = await start_engine()
        other = await (start_engine(behavior) if behavior else start_engine())
        front = await start_gateway(**settings)
        mirror = mirror or Mirror("new", None, 100)
        rule = RouteRule((), (("old", 1),), mirrors=(mirror,))
        services = make_service(main, name="old"), make_service(other, name="new")
        front.snapshots.publish(
            Snapshot(services, (Route("default", "route", "chat", 0, (rule,)),))
        )
        return front, main, other

    return make


@pytest.mark.parametrize("stream", [True, False])
async def test_copy_equals_the_original_but_for_model_and_id(mirrored, until, stream):
    front, main, other = await mirrored()
    assert (await front.ask(stream=stream, prompt="Hi"))[0] == 200
    await until(lambda: other.requests)
    await front.idle_with_copies()
    (original,), (copy,) = main.requests, other.requests
    assert json.loads(copy.body) == json.loads(original.body) | {"model": "new"}
    assert copy.headers["x-request-id"].startswith(f"{original.headers['x-request-id']}.copy-")
    assert copy.path == original.path
    assert await front.metric(MIRRORED, service="default/new", outcome="ok") == 1
    name = "penstock_gateway_mirrored_time_to_first_byte_seconds_count"
    assert await front.metric(name, service="default/new", revision="r1") == 1
    assert await front.metric("penstock_gateway_requests_total", service="default/new") == 0


async def test_no_engine_stores_the_response_of_a_copy(mirrored, until):
    front, main, other = await mirrored()
    for added in ({"background": True}, {}):
        assert (await front.ask("/v1/responses", input="Hi", store=True, **added))[0] == 200
    await until(lambda: other.requests)
    await front.idle_with_copies()
    assert [json.loads(each.body).get("background") for each in main.requests] == [True, None]
    (copy,) = other.requests
    sent = json.loads(main.requests[1].body)
    del sent["request_id"]  # of the original's engine
    assert json.loads(copy.body) == sent | {"model": "new", "store": False}


@pytest.mark.parametrize("behavior", [resets, breaks, cuts])
async def test_failed_copy_does_not_affect_the_original(mirrored, behavior):
    front, _, _ = await mirrored(behavior)
    for _ in range(5):
        status, body = await front.ask()
        assert status == 200
        assert body.endswith(b"data: [DONE]\n\n")
    await front.idle_with_copies()
    assert await front.metric(MIRRORED, outcome="error") == 5
    assert await front.metric("penstock_gateway_responses_total", code="200") == 5


async def test_number_of_open_copies_is_bounded(mirrored, until):
    front, _, other = await mirrored(hangs, max_mirrored=16)  # of which a service has 7
    answers = await asyncio.gather(*(front.ask() for _ in range(10)))
    assert [status for status, _ in answers] == [200] * 10
    await until(lambda: len(other.requests) == 7)
    assert front.gateway.state.mirror.num_open == 7
    assert await front.metric(MIRRORED, outcome="dropped") == 3


async def test_mirrors_of_one_namespace_leave_copies_to_others(
    start_engine, start_gateway, make_service, until
):
    main, hung, other = await start_engine(), await start_engine(hangs), await start_engine()
    front = await start_gateway(synced=False, max_mirrored=16)
    services = [
        make_service(main, namespace="party", name="main"),
        *(make_service(hung, namespace="party", name=name) for name in "abc"),
        make_service(main, name="old"), make_service(other, name="new"),
    ]  # fmt: skip
    all_hung = tuple(Mirror(name, None, 100) for name in "abc")
    of_party = RouteRule((), (("main", 1),), mirrors=all_hung)
    of_others = RouteRule((), (("old", 1),), mirrors=(Mirror("new", None, 100),))
    routes = (
        Route("party", "route", "party", 0, (of_party,)),
        Route("default", "route", "chat", 0, (of_others,)),
    )
    front.snapshots.publish(Snapshot(tuple(services), routes))
    for _ in range(10):
        assert (await front.ask(model="party"))[0] == 200
    await until(lambda: hung.active == 7)
    assert (await front.ask())[0] == 200
    await until(lambda: other.requests)
    assert await front.metric(MIRRORED, service="default/new", outcome="dropped") == 0


async def test_copy_to_an_unreachable_engine_is_an_error(mirrored):
    front, _, other = await mirrored()
    await other.stop()
    assert (await front.ask())[0] == 200
    await front.idle_with_copies()
    assert await front.metric(MIRRORED, outcome="error") == 1


@pytest.mark.parametrize("mirror", [Mirror("newer", None, 100), Mirror("new", "r9", 100)])
async def test_copy_without_an_endpoint_is_dropped(mirrored, mirror):
    front, _, other = await mirrored(mirror=mirror)
    assert (await front.ask())[0] == 200
    await front.idle_with_copies()
    assert not other.requests
    assert await front.metric(MIRRORED, outcome="dropped") == 1


async def test_revision_without_traffic_can_get_copies(
    start_engine, start_gateway, make_service, until
):
    stable, candidate = await start_engine(), await start_engine(revision="r2")
    front = await start_gateway()
    rule = RouteRule((), (("old", 1),), mirrors=(Mirror("old", "r2", 100),))
    service = make_service(stable, candidate, name="old", weights={"r1": 100, "r2": 0})
    front.snapshots.publish(Snapshot((service,), (Route("default", "r", "chat", 0, (rule,)),)))
    for _ in range(3):
        assert (await front.ask())[0] == 200
    await until(lambda: len(candidate.requests) == 3)
    assert len(stable.requests) == 3
    await front.idle_with_copies()


async def test_copy_is_sent_after_the_original_is_answered(mirrored, until, start_engine):
    gate = asyncio.Event()

    async def slow(request):
        await gate.wait()
        await request.whole(b"{}")

    front, main, other = await mirrored()
    main.behavior = slow
    asked = asyncio.create_task(front.ask(stream=False))
    await main.arrived.wait()
    await asyncio.sleep(0.05)
    assert not other.requests
    gate.set()
    await asked
    await until(lambda: other.requests)
    await front.idle_with_copies()


@pytest.mark.parametrize(
    ("behavior", "is_stream", "outcome"),
    [
        (whole(b"{}", "399 Odd"), False, "ok"),
        (whole(b"{}", "399 Odd"), True, "error"),  # without DONE
        (whole(b"{}", "400 Bad Request"), True, "error"),
        (stream(EVENT, b"data: [DONE]"), True, "ok"),
        (stream(EVENT), True, "error"),
        (stream(EVENT + DONE), True, "ok"),
    ],
)
async def test_outcome_of_a_copy(mirrored, until, behavior, is_stream, outcome):
    front, _, other = await mirrored(behavior)
    await front.ask(stream=is_stream)
    await until(lambda: other.requests)
    await front.idle_with_copies()
    labels = {"service": "default/new", "revision": "r1"}
    assert await front.metric(MIRRORED, outcome=outcome, **labels) == 1
    assert await front.metric(MIRRORED) == 1


@pytest.mark.parametrize(
    ("mirror", "service", "revision"),
    [
        (Mirror("newer", None, 100), "default/newer", ""),
        (Mirror("newer", "r5", 100), "default/newer", "r5"),
        (Mirror("new", "r9", 100), "default/new", "r9"),
    ],
)
async def test_dropped_copy_is_counted_for_the_requested_service_and_revision(
    mirrored, mirror, service, revision
):
    front, _, _ = await mirrored(mirror=mirror)
    await front.ask()
    await front.idle_with_copies()
    labels = {"service": service, "revision": revision, "outcome": "dropped"}
    async with front.client.get(front.management_url + "/metrics") as got:
        lines = [line for line in (await got.text()).splitlines() if line.startswith(MIRRORED)]
    inside = ",".join(f'{name}="{labels[name]}"' for name in ("outcome", "revision", "service"))
    assert lines == [f"{MIRRORED}{{{inside}}} 1.0"]


@pytest.mark.parametrize("length", [5, 100, 101, 128])
async def test_request_id_of_a_copy_fits_the_engines_limit(mirrored, until, length):
    front, _, other = await mirrored()
    given = "x" * length
    url, body = front.url + "/v1/completions", {"model": "chat"}
    async with front.client.post(url, json=body, headers={"x-request-id": given}) as got:
        await got.read()
    await until(lambda: other.requests)
    copied, _, own = other.requests[0].headers["x-request-id"].partition(".copy-")
    assert (copied, len(own)) == (given[:100], 8)
    await front.idle_with_copies()


async def test_copy_that_exceeds_the_total_timeout_is_an_error(mirrored, until):
    front, _, other = await mirrored(hangs, total_timeout_s=0.3)
    await front.ask()
    await until(lambda: other.requests)
    await front.idle_with_copies()
    assert await front.metric(MIRRORED, outcome="error") == 1
    assert front.gateway.state.limits.body_bytes.held == 0


async def test_copy_follows_no_redirect(mirrored, until):
    """A copy has no cookies and no keys."""

    async def redirects(request):
        location = f"location: http://{request.headers['host']}/other\r\nset-cookie: a=b\r\n"
        await request.whole(b"", "302 Found", location)

    front, _, other = await mirrored(redirects)
    url, body = front.url + "/v1/completions", {"model": "chat"}
    for number in (1, 2):
        headers = {"authorization": "Bearer x", "x-tag": "y"}
        async with front.client.post(url, json=body, headers=headers) as got:
            await got.read()
        await until(lambda number=number: len(other.requests) == number)
        await front.idle_with_copies()
    assert [request.path for request in other.requests] == ["/v1/completions"] * 2
    for request in other.requests:
        assert not {"authorization", "cookie", "accept-encoding"} & set(request.headers)
        assert request.headers["x-tag"] == "y"
    assert await front.metric(MIRRORED, outcome="ok") == 2
    assert len({request.writer for request in other.requests}) == 1  # one connection for both


async def test_copies_are_sent_concurrently(mirrored, until):
    front, _, other = await mirrored(hangs, max_mirrored=8)
    for _ in range(4):
        assert (await front.ask())[0] == 200
    await until(lambda: other.active == 3)
    await front.idle()
    assert front.gateway.state.mirror.num_open == 3
    assert await front.metric(MIRRORED, outcome="dropped", revision="") == 1
    await front.gateway.state.mirror.close()
    assert front.gateway.state.mirror.num_open == 0
    await until(lambda: not other.active)


@pytest.mark.parametrize(("less", "outcome"), [(0, "ok"), (1, "dropped")])
async def test_copies_to_a_service_hold_its_share_of_an_eighth_of_the_memory(
    mirrored, less, outcome
):
    front, main, _ = await mirrored()
    await front.ask(stream=False, padding="x" * 2000)
    padding = "x" * (2000 - len(main.requests[0].body) % 7)
    num_sevenths = len(main.requests[0].body) // 7
    front, _, other = await mirrored(max_held_body_bytes=8 * 2 * 8 * (num_sevenths - less))
    assert (await front.ask(stream=False, padding=padding))[0] == 200
    await front.idle_with_copies()
    assert await front.metric(MIRRORED, outcome=outcome) == 1
    assert len(other.requests) == 1 - less
    assert front.gateway.state.mirror.held_bytes == 0


async def test_copies_that_hang_take_no_memory_of_requests(mirrored, until):
    """A hung mirror held the bodies of its copies, up to the memory of all requests."""
    front, _, other = await mirrored(hangs, max_held_body_bytes=160_000)
    for _ in range(20):
        assert (await front.ask(stream=False, padding="x" * 8_000))[0] == 200
    await until(lambda: other.active == 1)
    assert front.gateway.state.limits.body_bytes.held == 0
    assert 8_000 < front.gateway.state.mirror.held_bytes <= 8_750


LIMITS = {"first_byte_timeout_s": 60.0, "between_chunks_timeout_s": 60.0}


@pytest.mark.parametrize(
    ("behavior", "is_stream", "limit"),
    [
        (hangs, True, {"first_byte_timeout_s": 0.05}),
        (hangs, False, {"total_timeout_s": 0.5}),
        (begins, True, {"between_chunks_timeout_s": 0.05}),
    ],
)
async def test_copy_has_the_time_limits_of_a_request(mirrored, behavior, is_stream, limit):
    front, _, _ = await mirrored(behavior, **LIMITS | limit)
    assert (await front.ask(stream=is_stream))[0] == 200
    await front.idle_with_copies()
    assert await front.metric(MIRRORED, outcome="error") == 1


@pytest.mark.parametrize("is_stream", [True, False])
async def test_copy_has_the_time_limit_of_its_rule(
    start_engine, start_gateway, make_service, is_stream
):
    main, other = await start_engine(), await start_engine(begins)
    front = await start_gateway(synced=False)
    mirrors = (Mirror("new", None, 100),)
    rule = RouteRule((), (("old", 1),), mirrors=mirrors, timeout_s=0.5)
    services = make_service(main, name="old"), make_service(other, name="new")
    front.snapshots.publish(Snapshot(services, (Route("default", "route", "chat", 0, (rule,)),)))
    assert (await front.ask(stream=is_stream))[0] == 200
    await front.idle_with_copies()
    assert await front.metric(MIRRORED, outcome="error") == 1


async def test_each_mirror_has_a_draw_of_its_own(start_engine, start_gateway, make_service):
    """A common draw would copy the same requests to both mirrors."""
    main, first, second = await start_engine(), await start_engine(), await start_engine()
    front = await start_gateway(synced=False)
    mirrors = (Mirror("first", None, 50), Mirror("second", None, 50))
    rule = RouteRule((), (("old", 1),), mirrors=mirrors)
    names = ((main, "old"), (first, "first"), (second, "second"))
    services = [make_service(engine, name=name) for engine, name in names]
    routes = (Route("default", "route", "chat", 0, (rule,)),)
    front.snapshots.publish(Snapshot(tuple(services), routes))
    random.seed(7)
    for _ in range(60):
        assert (await front.ask(stream=False))[0] == 200
        await front.idle_with_copies()
    copied = [
        {request.headers["x-request-id"].partition(".")[0] for request in engine.requests}
        for engine in (first, second)
    ]
    assert copied[0] - copied[1]
    assert copied[1] - copied[0]
    assert copied[0] & copied[1]
