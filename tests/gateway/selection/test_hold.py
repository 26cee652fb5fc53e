"""Requests for a service at zero: they are held within limits, and call the operator at once."""

import asyncio
import json
from dataclasses import replace

import aiohttp
import pytest
from tests.gateway.engine_answers import CHUNKS, DONE, whole

from penstock.clients.pods.wake_poll import PATH, TOKEN, WakePoll
from penstock.core.spec.objectives import Objectives

COMMENT = b": waiting for an engine\n\n"
STARTUP_S = 42.0


@pytest.fixture
def asleep(make_service):
    return replace(make_service(), wakes_in_s=STARTUP_S)


def awake(asleep, *engines):
    sides = {f"default/{engine.name}": next(iter(asleep.weights)) for engine in engines}
    return replace(asleep, endpoints=tuple(each.endpoint() for each in engines), sides=sides)


@pytest.mark.parametrize(
    ("objectives", "wait_s"), [(None, 0.2), (Objectives.parse("2s", "100ms", "0.99"), 60)]
)
async def test_200_held_requests_are_answered_when_an_engine_is_ready(
    until, start_engine, start_gateway, asleep, objectives, wait_s
):
    """The time of the hold is no part of the ordinary wait for an engine."""
    asleep = replace(asleep, objectives=objectives)
    front = await start_gateway(wait_for_endpoint_s=wait_s)
    front.publish(asleep)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as front.client:
        asking = [asyncio.create_task(front.ask(stream=i % 2 == 0)) for i in range(200)]
        await until(lambda: front.gateway.state.waiting == 200)
        await asyncio.sleep(0.3)
        report = front.gateway.state.stats.report(front.snapshots.current)
        assert report.services["default/chat"].queued == 200

        engine = await start_engine()
        front.publish(awake(asleep, engine))

        assert {status for status, _ in await asyncio.gather(*asking)} == {200}
    assert len(engine.requests) == 200


async def test_a_held_stream_has_comments_and_then_the_answer(
    until, start_engine, start_gateway, asleep
):
    front = await start_gateway(hold_comment_interval_s=0.01)
    front.publish(asleep)
    async with front.post() as got:
        assert (got.status, got.headers["content-type"]) == (
            200,
            "text/event-stream; charset=utf-8",
        )
        assert "x-request-id" in got.headers
        front.publish(awake(asleep, await start_engine()))
        body = await got.read()
    assert body.startswith(COMMENT)
    assert body.replace(COMMENT, b"") == b"".join([*CHUNKS, DONE])


async def test_no_comment_is_sent_before_its_time_nor_to_who_wants_no_stream(
    until, start_engine, start_gateway, asleep
):
    front = await start_gateway(hold_comment_interval_s=0.01)
    front.publish(asleep)
    asking = asyncio.create_task(front.ask(stream=False))
    await until(lambda: front.gateway.state.waiting == 1)
    await asyncio.sleep(0.05)
    front.publish(awake(asleep, await start_engine()))
    status, body = await asking
    assert (status, b"waiting" in body) == (200, False)


@pytest.mark.parametrize("stream", [True, False])
async def test_the_hold_is_limited_and_the_client_told_when_to_come_again(
    start_gateway, asleep, stream
):
    front = await start_gateway(hold_s=0.1)
    front.publish(asleep)
    async with front.post(stream=stream) as got:
        error = (await got.json())["error"]
    assert (got.status, got.headers["retry-after"]) == (503, "42")
    assert (error["code"], error["type"]) == ("scaled_to_zero", "unavailable_error")
    assert error["message"] == (
        "the InferenceService default/chat had no engine, and one is starting: send the request again later"
    )


async def test_a_stream_whose_hold_is_over_ends_with_the_error(start_gateway, asleep):
    front = await start_gateway(hold_s=0.1, hold_comment_interval_s=0.01)
    front.publish(asleep)
    status, body = await front.ask()
    comments, event = body.replace(COMMENT, b""), body.split(b"data: ")[1]
    assert (status, comments.endswith(DONE)) == (200, True)
    assert json.loads(event)["error"]["code"] == "scaled_to_zero"


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_error_of_a_held_stream_has_the_form_of_its_api(start_gateway, asleep, path):
    front = await start_gateway(hold_s=0.1, hold_comment_interval_s=0.01)
    front.publish(asleep)
    status, body = await front.ask(path)
    name, event = body.replace(COMMENT, b"").split(b"\ndata: ")
    error = json.loads(event)["error"]
    assert (status, name, event[-2:]) == (200, b"event: error", b"\n\n")
    assert error["message"].startswith("the InferenceService default/chat had no engine")
    assert error["type"] == ("overloaded_error" if path == "/v1/messages" else "unavailable_error")


@pytest.mark.parametrize("answer", [b'{"error":\n {"message": "no"}}', b'{"choices": []}'])
async def test_what_an_engine_answers_to_a_stream_with_comments_is_an_event(
    until, start_engine, start_gateway, asleep, answer
):
    front = await start_gateway(hold_comment_interval_s=0.01)
    front.publish(asleep)
    engine = await start_engine(whole(answer, "400 Bad Request"))
    async with front.post() as got:
        front.publish(awake(asleep, engine))
        body = await got.read()
    event = body.replace(COMMENT, b"").removesuffix(DONE).replace(b"data: ", b"")
    assert json.loads(event) == json.loads(answer)
    assert body.endswith(DONE)


@pytest.mark.parametrize(
    ("prefer", "status"), [("wait=0", 503), ("respond-async, wait=0", 503), ("wait=60", 200)]
)
async def test_a_client_says_how_long_it_waits(
    until, start_engine, start_gateway, asleep, prefer, status
):
    front = await start_gateway()
    front.publish(asleep)
    body = {"model": "chat"}
    url = front.url + "/v1/chat/completions"
    asking = asyncio.create_task(front.client.post(url, json=body, headers={"Prefer": prefer}))
    if status == 200:
        await until(lambda: front.gateway.state.waiting == 1)
        front.publish(awake(asleep, await start_engine()))
    assert (await asking).status == status


async def test_a_request_beyond_the_number_or_the_memory_calls_the_operator_too(
    until, start_gateway, asleep
):
    front = await start_gateway(max_waiting=1, max_held_body_bytes=100_000)
    front.publish(asleep)
    held = asyncio.create_task(front.ask())
    await until(lambda: front.gateway.state.waiting == 1)
    before = front.gateway.state.wake_calls.token
    for fields, reason in (({}, "queue_full"), ({"user": "u" * 90_000}, "memory")):
        async with front.post(**fields) as got:
            assert got.status == 503
        assert int(got.headers["retry-after"]) in (5, 42), reason
        assert await front.metric("penstock_gateway_rejections_total", reason=reason) == 1
        assert front.gateway.state.wake_calls.token != before
    held.cancel()


async def test_a_client_that_leaves_is_let_go_at_once(until, start_gateway, asleep):
    front = await start_gateway(hold_comment_interval_s=0.01)
    front.publish(asleep)
    session = aiohttp.ClientSession()
    got = await session.post(
        front.url + "/v1/chat/completions", json={"model": "chat", "stream": True}
    )
    await until(lambda: front.gateway.state.waiting == 1)
    got.close()
    await session.close()
    await until(lambda: front.gateway.state.waiting == 0)
    await front.idle()
    assert front.gateway.state.limits.body_bytes.held == 0


async def test_a_gateway_that_stops_lets_its_held_requests_go(until, start_gateway, asleep):
    front = await start_gateway()
    front.publish(asleep)
    asking = asyncio.create_task(front.ask())
    await until(lambda: front.gateway.state.waiting == 1)
    front.stop.set()
    status, body = await asking
    assert (status, json.loads(body)["error"]["message"]) == (503, "the gateway is stopping")


async def test_a_service_that_may_no_longer_be_at_zero_is_waited_for_as_others_are(
    until, start_gateway, asleep
):
    front = await start_gateway(wait_for_endpoint_s=0.1)
    front.publish(asleep)
    asking = asyncio.create_task(front.ask())
    await until(lambda: front.gateway.state.waiting == 1)
    front.publish(replace(asleep, wakes_in_s=None))
    status, body = await asking
    assert (status, json.loads(body)["error"]["message"]) == (503, "no engine is ready")


async def test_the_operators_poll_ends_with_the_first_request(until, start_gateway, asleep):
    front = await start_gateway()
    front.publish(asleep)
    poll = WakePoll()
    address = front.management_url.removeprefix("http://")
    token = await poll.wait(address, "")
    assert token
    waiting = asyncio.create_task(poll.wait(address, token))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    asking = asyncio.create_task(front.ask())
    assert await waiting not in (None, token)
    asking.cancel()
    await poll.close()


async def test_a_request_for_a_service_with_engines_calls_nobody(
    start_engine, start_gateway, asleep
):
    front = await start_gateway()
    front.publish(awake(asleep, await start_engine()))
    before = front.gateway.state.wake_calls.token
    assert (await front.ask())[0] == 200
    assert front.gateway.state.wake_calls.token == before


async def test_polls_end_when_the_gateway_stops(start_gateway):
    front = await start_gateway()
    token = front.gateway.state.wake_calls.token
    url = front.management_url + PATH
    waiting = asyncio.create_task(front.client.get(url, params={TOKEN: token}))
    await asyncio.sleep(0.05)
    front.gateway.drain()
    assert (await waiting).status == 200


async def test_a_gateway_without_the_poll_or_without_an_answer_is_none(start_engine):
    poll = WakePoll()
    engine = await start_engine(whole(b"", "404 Not Found"))
    assert await poll.wait(f"127.0.0.1:{engine.port}", "") is None
    await engine.stop()
    assert await poll.wait(f"127.0.0.1:{engine.port}", "") is None
    await poll.close()
