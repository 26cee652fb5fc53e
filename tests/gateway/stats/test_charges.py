"""Endings of requests over real sockets: what engines, revisions and services are charged with."""

import asyncio
import io
import json
import random
from dataclasses import replace

import pytest
from tests.gateway.engine_answers import DONE, EVENT, breaks, hangs, resets, stream

from penstock.core.routing.pick import Endpoint
from penstock.core.routing.route import RouteRule
from penstock.gateway.snapshots.snapshot import Route, Snapshot

CHAT = "/v1/chat/completions"
WEIGHTS = {"r1": 50, "r2": 50}


async def unsupported(request):
    await request.whole(b"{}", "501 Not Implemented")


async def large_header(request):
    await request.whole(b"{}", extra=f"x-large: {'a' * 20_000}\r\n")


def poisoned_by(fault):
    """Fails the requests whose prompt is poison."""

    async def behave(request):
        is_poison = json.loads(request.body).get("prompt") == "poison"
        await (fault(request) if is_poison else request.whole(b"{}"))

    return behave


async def errors_of(front):
    """Errors by engine, and the requests of the service that failed."""
    await front.idle()
    stats = front.gateway.state.stats.get("default/chat")
    return {pod: arm.errors for pod, arm in stats.arms().items() if arm.errors}, stats.failed


@pytest.mark.parametrize("fault", [breaks, resets, large_header])
async def test_request_that_breaks_engines_is_no_error_of_a_revision(
    start_engine, start_gateway, make_service, fault
):
    """The request is tried on one engine of each side, even if its user always goes to the canary."""
    engines = [
        await start_engine(poisoned_by(fault), revision) for revision in ("r1", "r1", "r2", "r2")
    ]
    front = await start_gateway(min_retries=100)
    front.publish(replace(make_service(*engines, weights=WEIGHTS), affinity="User"))
    for number in range(10):
        await front.ask(stream=False, prompt="poison", user=f"user-{number}")
        if not number:
            tried = [engine.revision for engine in engines if engine.requests]
            assert tried == ["r1", "r2"]
        await front.ask(stream=False, user=f"user-{number}")
    bodies = [json.loads(request.body) for engine in engines for request in engine.requests]
    assert sum(body.get("prompt") == "poison" for body in bodies) == 20
    assert await errors_of(front) == ({}, 10)


async def test_without_affinity_nothing_in_a_request_chooses_its_revision(
    start_engine, start_gateway, make_service
):
    engines = [await start_engine(revision=revision) for revision in ("r1", "r2")]
    front = await start_gateway()
    front.publish(make_service(*engines, weights=WEIGHTS))

    async def count_after_each(number, fields, headers):
        """Requests that r2 got, after each request with these fields and headers."""
        random.seed(1)
        counts, before = [], len(engines[1].requests)
        for _ in range(number):
            body = {"model": "chat"} | fields
            async with front.client.post(front.url + CHAT, json=body, headers=headers) as got:
                await got.read()
            await front.idle()
            counts.append(len(engines[1].requests) - before)
        return counts

    drawn = await count_after_each(20, {}, {})
    assert 0 < drawn[-1] < 20
    for fields, headers in (
        ({"user": "one"}, {}),
        ({"messages": [{"role": "user", "content": "one"}]}, {}),
        ({"prompt": "one", "max_tokens": 1, "stop": "a"}, {}),
        ({}, {"x-tenant": "one", "x-request-id": "one", "cookie": "side=r2"}),
    ):
        assert await count_after_each(20, fields, headers) == drawn


async def empty_on_demand(request):
    text = "" if json.loads(request.body)["prompt"] == "empty" else "a"
    await request.whole(json.dumps({"choices": [{"text": text}]}).encode())


async def empty_answers(front):
    await front.idle()
    arms = front.gateway.state.stats.get("default/chat").arms()
    return sum(arm.empty_outputs for arm in arms.values())


@pytest.mark.parametrize(("affinity", "num_empty"), [("User", 0), ("None", 20)])
async def test_user_that_stays_with_a_revision_gives_it_no_empty_answers(
    start_engine, start_gateway, make_service, affinity, num_empty
):
    """Such a user may know the revision. Without affinity nobody can choose one."""
    engines = [await start_engine(empty_on_demand, revision) for revision in ("r1", "r2")]
    front = await start_gateway()
    front.publish(replace(make_service(*engines, weights=WEIGHTS), affinity=affinity))
    await front.ask(stream=False, prompt="hello", user="one")
    for _ in range(20):
        await front.ask(stream=False, prompt="empty", user="one")
    assert await empty_answers(front) == num_empty


async def test_empty_answers_of_new_users_count(start_engine, start_gateway, make_service):
    """New users cannot know their revision beforehand."""
    engines = [await start_engine(empty_on_demand, revision) for revision in ("r1", "r2")]
    front = await start_gateway()
    front.publish(replace(make_service(*engines, weights=WEIGHTS), affinity="User"))
    for number in range(20):
        await front.ask(stream=False, prompt="empty", user=f"user-{number}")
    assert await empty_answers(front) == 20


@pytest.mark.parametrize("fault", [breaks, resets])
async def test_broken_canary_is_charged_when_the_other_side_answers(
    start_engine, start_gateway, make_service, fault
):
    engines = [
        await start_engine(fault if n > 1 else poisoned_by(fault), f"r{n // 2 + 1}")
        for n in range(4)
    ]
    front = await start_gateway(min_retries=100)
    front.publish(make_service(*engines, weights=WEIGHTS))
    for _ in range(30):
        assert (await front.ask(stream=False))[0] == 200
    errors, failed = await errors_of(front)
    assert failed == 0
    assert errors == {
        f"default/engine-{n}": len(engines[n].requests) for n in (2, 3) if engines[n].requests
    }


@pytest.mark.parametrize("fault", [breaks, resets])
async def test_broken_canary_is_charged_by_a_gateway_without_retries(
    start_engine, start_gateway, make_service, fault
):
    engines = [await start_engine(), await start_engine(fault, "r2")]
    front = await start_gateway(max_attempts=1)
    front.publish(make_service(*engines, weights=WEIGHTS))
    statuses = [(await front.ask(stream=False))[0] for _ in range(20)]
    num_failed = len(engines[1].requests)
    assert len(statuses) - statuses.count(200) == num_failed > 0
    assert await errors_of(front) == ({"default/engine-1": num_failed}, num_failed)


async def test_broken_revision_without_another_side_is_charged(
    start_engine, start_gateway, make_service
):
    engines = [await start_engine(breaks) for _ in range(2)]
    front = await start_gateway(*engines)
    assert (await front.ask(stream=False))[0] == 500
    assert await errors_of(front) == ({"default/engine-0": 1, "default/engine-1": 1}, 1)


async def test_status_about_the_request_is_no_error_of_engine_or_service(
    start_engine, start_gateway
):
    front = await start_gateway(await start_engine(unsupported))
    for _ in range(5):
        assert (await front.ask(stream=False))[0] == 501
    assert await errors_of(front) == ({}, 0)
    assert not front.gateway.state.endpoints.suspects


@pytest.mark.parametrize(("code", "is_charged"), [(504, False), (500, True)])
async def test_deadline_that_a_client_sets_charges_no_engine(
    start_engine, start_gateway, code, is_charged
):
    """`x-request-timeout-s` ends a stream with an error event of code 504."""
    error = b'data: {"error": {"message": "over", "code": %d}}\n\n' % code
    engine = await start_engine(stream(EVENT, error, DONE))
    front = await start_gateway(engine)
    for _ in range(3):
        assert (await front.ask())[1] == EVENT + error + DONE
    errors, failed = await errors_of(front)
    assert (errors, failed) == (({"default/engine-0": 3}, 3) if is_charged else ({}, 0))
    assert bool(front.gateway.state.endpoints.suspects) == is_charged


@pytest.fixture
async def impatient(start_engine, start_gateway, make_service):
    """`await impatient(behavior)` -> a gateway with a route whose requests may take 0.1 s."""

    async def make(behavior):
        front = await start_gateway()
        service = make_service(await start_engine(behavior), served_name="model")
        rule = RouteRule((), (("chat", 1),), timeout_s=0.1)
        front.snapshots.publish(
            Snapshot((service,), (Route("default", "route", "chat", 0, (rule,)),))
        )
        return front

    return make


@pytest.mark.parametrize("stream", [True, False])
async def test_time_limit_of_a_route_charges_no_engine(impatient, stream):
    front = await impatient(hangs)
    for _ in range(4):
        status, body = await front.ask(stream=stream)
        assert status == 504
        assert json.loads(body)["error"]["message"] == "the time limit of the ModelRoute is over"
    assert await errors_of(front) == ({}, 0)
    assert not front.gateway.state.endpoints.suspects
    rejections = "penstock_gateway_rejections_total"
    assert await front.metric(rejections, reason="route_timeout") == 4
    assert await front.metric(rejections, reason="timeout") == 0


async def test_time_limit_of_a_route_within_a_stream_charges_no_engine(impatient):
    async def endless(request):
        await request.head()
        while True:
            await request.chunk(EVENT)
            await asyncio.sleep(0.01)

    front = await impatient(endless)
    status, body = await front.ask()
    assert status == 200
    assert b"the time limit of the ModelRoute is over" in body
    assert await errors_of(front) == ({}, 0)
    assert not front.gateway.state.endpoints.suspects
    assert await front.metric("penstock_gateway_streams_cut_total", cause="route_timeout") == 1


@pytest.fixture
async def unread_address():
    """The address of a listener that resets each connection when it has read the head, and their number."""
    heads: list[bytes] = []

    async def connected(reader, writer):
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.transport.abort()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", heads
    server.close()
    await server.wait_closed()


async def test_connection_that_breaks_while_the_body_is_sent_is_retried_several_times(
    start_gateway, make_service, unread_address
):
    """An engine that has not read the request cannot have broken because of it."""
    address, heads = unread_address
    front = await start_gateway(max_attempts=4)
    engine = Endpoint("default/broken", address, "r1")
    front.publish(replace(make_service(), endpoints=(engine,)))
    body = io.BytesIO(json.dumps({"model": "chat", "prompt": "x" * 3_500_000}).encode())
    headers = {"content-type": "application/json"}
    async with front.client.post(front.url + "/v1/completions", data=body, headers=headers) as got:
        assert got.status == 502
    assert len(heads) == 4
