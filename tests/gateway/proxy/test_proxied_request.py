"""Proxying one request: errors, health, statistics and headers."""

import asyncio
import json
from dataclasses import replace

import pytest
from tests.gateway.engine_answers import DONE

from penstock.core.routing.pick import Side
from penstock.core.spec.objectives import Objectives

EVENT = b'data: {"n": 0}\n\n'


async def silent(request):
    await asyncio.Event().wait()


def error_of(body):
    error = json.loads(body)["error"]
    return error["message"], error["type"], error["code"]


async def test_503_when_there_is_no_snapshot_within_the_wait_limit(start_gateway):
    front = await start_gateway(synced=False, wait_for_endpoint_s=0.05)
    async with front.post() as got:
        assert (got.status, got.headers["retry-after"]) == (503, "5")
        message = error_of(await got.read())
    assert message == ("no engine is known yet", "overloaded_error", 503)


async def test_total_timeout_counts_before_the_first_snapshot(start_gateway):
    front = await start_gateway(synced=False, total_timeout_s=0.05)
    async with front.post() as got:
        assert (got.status, "retry-after" in got.headers) == (504, False)
        message = error_of(await got.read())
    assert message == ("the engine did not answer in time", "upstream_error", 504)


@pytest.mark.parametrize(
    ("status", "expected", "message"),
    [
        ("503 Service Unavailable", 503, "no engine accepts requests"),
        ("502 Bad Gateway", 503, "no engine accepts requests"),
        (None, 502, "the engines that were tried did not answer"),
    ],
)
async def test_error_when_no_engine_answered(
    start_engine, start_gateway, status, expected, message
):
    async def behave(request):
        if status is None:
            request.reset()
        else:
            await request.whole(b"{}", status)

    engine = await start_engine(behave)
    for attempts in (1, 2):
        engine.requests.clear()
        front = await start_gateway(engine, max_attempts=attempts)
        async with front.post() as got:
            assert got.status == expected
            assert got.headers.get("retry-after") == ("5" if expected == 503 else None)
            assert error_of(await got.read())[0] == message
        assert len(engine.requests) == attempts


async def test_engines_own_error_is_passed_on_if_other_engines_reset(start_engine, start_gateway):
    """The order of the two failures does not matter."""

    async def error(request):
        await request.whole(b'{"error": "mine"}', "500 Internal Server Error", "x-mine: 1\r\n")

    async def reset(request):
        request.reset()

    front = await start_gateway(
        await start_engine(error), await start_engine(reset), wait_for_endpoint_s=0.5
    )
    for _ in range(6):
        async with front.post() as got:
            assert (got.status, got.headers.get("x-mine")) == (500, "1")
            assert await got.read() == b'{"error": "mine"}'
    await front.idle()
    stats = front.gateway.state.stats.get("default/chat")
    assert (stats.failed, stats.ended, stats.shed) == (6, 0, 0)


async def test_first_byte_timeouts_eject_at_most_half_of_the_engines(start_engine, start_gateway):
    """Engines that time out accept connections, so at most half of them are ejected."""
    engines = [await start_engine(silent) for _ in range(2)]
    front = await start_gateway(*engines, first_byte_timeout_s=0.02)
    endpoints = front.gateway.state.endpoints
    for _ in range(12):
        assert (await front.ask())[0] == 504
    assert len(endpoints.suspects) == 2
    ejected = endpoints.ejected([e.endpoint() for e in engines], front.gateway.state.now())
    assert len(ejected) == 1


@pytest.mark.parametrize(
    ("limit", "is_suspect"), [("between_chunks_timeout_s", True), ("total_timeout_s", False)]
)
async def test_timeout_between_chunks_is_the_engines_failure_but_the_total_is_not(
    start_engine, start_gateway, limit, is_suspect
):
    """A slow client may have used up the total time."""

    async def stands_still(request):
        await request.head()
        await request.chunk(EVENT)
        await asyncio.Event().wait()

    front = await start_gateway(await start_engine(stands_still), **{limit: 0.05})
    assert (await front.ask())[0] == 200
    await front.idle()
    assert front.gateway.state.endpoints.suspects == ({"default/engine-0"} if is_suspect else set())


@pytest.mark.parametrize(("cause", "errors"), [("timeout", 1), ("shutdown", 0)])
async def test_timeout_is_the_engines_failure_but_shutdown_is_not(
    start_engine, start_gateway, make_service, until, cause, errors
):
    engines = [await start_engine(silent), await start_engine(silent, "r2")]
    limits = {"first_byte_timeout_s": 0.1} if cause == "timeout" else {}
    front = await start_gateway(**limits)
    front.publish(make_service(*engines, weights={"r1": 100}))
    asking = asyncio.create_task(front.ask())
    await engines[0].arrived.wait()
    if cause == "shutdown":
        front.gateway.cancel_requests()
    assert (await asking)[0] in (503, 504)
    await front.idle()
    stats = front.gateway.state.stats.get("default/chat")
    assert (stats.failed, stats.shed) == (1, 0)
    assert stats.arm("default/engine-0").snapshot().errors == errors
    assert bool(front.gateway.state.endpoints.suspects) == bool(errors)


async def test_tokens_and_open_requests_are_counted_while_in_flight(
    start_engine, start_gateway, until
):
    engine = await start_engine(silent)
    front = await start_gateway(engine)
    asking = asyncio.create_task(front.ask(prompt="x" * 400))
    await until(lambda: engine.active)
    assert front.gateway.state.engines.tokens == {"default/engine-0": 100 + 256}
    assert front.gateway.state.open_requests.count("default/chat") == 1
    asking.cancel()
    await front.idle()
    assert front.gateway.state.open_requests.total == 0


async def test_sticky_user_stays_on_one_side(start_engine, start_gateway, make_service):
    engines = [await start_engine(), await start_engine(revision="r2")]
    front = await start_gateway()
    service = make_service(*engines, weights={"r1": 50, "r2": 50})
    front.publish(replace(service, affinity="User"))
    for _ in range(20):
        await front.ask(stream=False, user="ada")
    assert sorted(len(engine.requests) for engine in engines) == [0, 20]
    front.publish(service)
    for _ in range(30):
        await front.ask(stream=False, user="ada")
    assert min(len(engine.requests) for engine in engines) > 0


async def test_first_event_of_a_chat_is_no_token(start_engine, start_gateway):
    """Five events are four tokens in a chat and five in a completion."""
    front = await start_gateway(await start_engine())
    for path, tokens in (("/v1/chat/completions", 4), ("/v1/completions", 4 + 5)):
        await front.ask(path)
        await front.idle()
        assert front.gateway.state.stats.get("default/chat").output_tokens == tokens


async def test_tpot_objective_is_sent_to_the_engine_as_a_header(
    start_engine, start_gateway, make_service
):
    engine = await start_engine()
    front = await start_gateway()
    for tpot_s, expected in ((0.05, "0.05"), (2.0, "2"), (1e-05, "1e-05")):
        front.publish(make_service(engine, objectives=Objectives(30.0, tpot_s)))
        assert (await front.ask())[0] == 200
        assert engine.requests[-1].headers["x-penstock-tpot-s"] == expected


async def test_model_is_rewritten_to_the_served_name(start_engine, start_gateway, make_service):
    engine = await start_engine()
    front = await start_gateway()
    front.publish(make_service(engine, served_name="Qwen3"))
    assert (await front.ask(model="default/Qwen3"))[0] == 200
    assert json.loads(engine.requests[0].body)["model"] == "Qwen3"
    assert (await front.ask(model="chat"))[0] == 404


async def test_failure_of_an_engine_without_traffic_is_not_charged(
    start_engine, start_gateway, make_service
):
    """An engine that left the traffic before it failed is not charged."""
    stable, other = await start_engine(), await start_engine(revision="r2")
    front = await start_gateway()
    both = make_service(stable, other, weights={"r1": 100, "r2": 0})
    front.publish(both)

    async def leaves_then_fails(request):
        front.publish(replace(both, weights={Side("r1"): 0, Side("r2"): 100}))
        await request.whole(b"{}", "500 Internal Server Error")

    stable.behavior = leaves_then_fails
    assert (await front.ask())[0] == 200
    await front.idle()
    arms = front.gateway.state.stats.get("default/chat").arms()
    assert {pod: (arm.requests, arm.errors) for pod, arm in arms.items()} == {
        "default/engine-1": (1, 0)
    }


async def test_client_that_pauses_does_not_trigger_the_timeout_between_chunks(
    start_engine, start_gateway, until
):
    """The time limit concerns the engine alone."""
    num_sent = 0

    async def large(request):
        nonlocal num_sent
        await request.head()
        for _ in range(8):
            await request.chunk(b"data: " + b"x" * 2_000_000 + b"\n\n")
            num_sent += 1
        await request.chunk(DONE)
        await request.end()

    front = await start_gateway(await start_engine(large), between_chunks_timeout_s=1.0)
    async with front.post() as got:
        await asyncio.sleep(2.0)
        assert num_sent < 8
        body = await got.read()
    assert len(body) == 8 * 2_000_008 + len(DONE)
    assert body.endswith(DONE)
    assert await front.metric("penstock_gateway_streams_cut_total") == 0


async def test_tpot_is_not_counted_for_a_client_that_pauses(start_engine, start_gateway, until):
    now_s = 1000.0
    go = asyncio.Event()

    async def large(request):
        await request.head()
        for _ in range(8):
            await request.chunk(b"data: " + b"x" * 2_000_000 + b"\n\n")
        await request.chunk(DONE)
        await request.end()
        go.set()

    front = await start_gateway(await start_engine(large), now=lambda: now_s)
    async with front.post() as got:
        (connection,) = front.server.server_state.connections
        await until(lambda: connection.flow.write_paused)
        await asyncio.sleep(0.3)  # the gateway waits to send the next part
        assert not go.is_set()
        now_s += 10.0
        await got.read()
    await front.idle()
    seen = front.gateway.state.stats.get("default/chat").reading(0.0, now_s)
    assert (seen.ended, seen.ttft_s.count, seen.tpot_s.count) == (1, 1, 0)


async def test_truncated_large_response_ends_without_a_last_chunk(start_engine, start_gateway):
    """An error event would be taken for a part of the JSON body."""

    async def breaks_off(request):
        await request.head("application/json")
        await request.chunk(b"x" * 5000)
        await asyncio.sleep(0.02)
        request.reset()

    front = await start_gateway(await start_engine(breaks_off), max_buffered_answer_bytes=1000)
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    body = b'{"model": "chat"}'
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
    writer.write(head % len(body) + body)
    answer = await reader.read()
    assert answer.endswith(b"x\r\n")
    assert b"error" not in answer
    writer.close()


async def test_complete_response_to_a_stream_request_has_no_ttft(start_engine, start_gateway):
    """A complete response comes all at once."""

    async def whole(request):
        await request.whole(b'{"usage": {"prompt_tokens": 9, "completion_tokens": 5}}')

    front = await start_gateway(await start_engine(whole))
    assert (await front.ask(stream=True))[0] == 200
    await front.idle()
    seen = front.gateway.state.stats.get("default/chat").reading(0.0, 0.0)
    assert (seen.ended, seen.output_tokens, seen.ttft_s.count, seen.tpot_s.count) == (1, 5, 0, 0)


async def test_start_of_a_stream_clears_earlier_failures_unless_streams_broke_off(
    start_engine, start_gateway, until
):
    go = asyncio.Event()
    do = ["reset"]

    async def behave(request):
        match do[0]:
            case "reset":
                request.reset()
            case "break off":
                await request.head()
                await request.chunk(EVENT)
                await asyncio.sleep(0.02)
                request.reset()
            case "answer":
                await request.head()
                await request.chunk(EVENT)
                await go.wait()
                await request.chunk(DONE)
                await request.end()

    front = await start_gateway(await start_engine(behave), max_attempts=1)
    endpoints = front.gateway.state.endpoints
    for fault, is_cleared in (("reset", True), ("break off", False)):
        do[0] = fault
        await front.ask()
        await front.idle()
        assert endpoints.suspects == {"default/engine-0"}
        do[0] = "answer"
        go.clear()
        async with front.post() as got:
            assert await got.content.readany() == EVENT
            assert (endpoints.suspects == set()) == is_cleared
            go.set()
            assert await got.read() == DONE
        await front.idle()
        assert endpoints.suspects == set()
