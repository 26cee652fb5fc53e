"""Proxying one request: time limits, retries and error answers at their boundaries."""

import asyncio
import json
from dataclasses import replace

import pytest

from penstock.core.routing.pick import Side
from penstock.core.spec.objectives import Objectives
from penstock.gateway.app import Gateway
from penstock.gateway.fleet import Fleet
from penstock.gateway.server import LAST_WORDS_S, _beat, server_for
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.upstream import Upstream

EVENT = b'data: {"n": 0}\n\n'
DONE = b"data: [DONE]\n\n"


async def silent(request):
    await asyncio.Event().wait()


def error_of(body):
    error = json.loads(body)["error"]
    return error["message"], error["type"], error["code"]


async def test_a_gateway_that_knows_nothing_yet(start_gateway):
    front = await start_gateway(synced=False, wait_for_endpoint_s=0.05)
    async with front.post() as got:
        assert (got.status, got.headers["retry-after"]) == (503, "5")
        message = error_of(await got.read())
    assert message == ("no engine is known yet", "overloaded_error", 503)


async def test_all_of_it_has_its_time_before_the_fleet_is_known_too(start_gateway):
    front = await start_gateway(synced=False, total_timeout_s=0.05)
    async with front.post() as got:
        assert (got.status, "retry-after" in got.headers) == (504, False)
        message = error_of(await got.read())
    assert message == ("the engine did not answer in time", "upstream_error", 504)


@pytest.mark.parametrize(
    ("status", "expected", "message"),
    [
        ("503 Service Unavailable", 503, "no engine takes requests"),
        ("502 Bad Gateway", 503, "no engine takes requests"),
        (None, 502, "the engines that were tried did not answer"),
    ],
)
async def test_when_no_engine_answered(start_engine, start_gateway, status, expected, message):
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


async def test_at_the_end_waiting_requests_are_told_to_come_again(
    start_gateway, make_service, until
):
    front = await start_gateway()
    front.show(make_service())
    posted = asyncio.create_task(front.post().__aenter__())
    await until(lambda: front.gateway.shared.waiting == 1)
    front.gateway.stop()
    got = await posted
    assert (got.status, got.headers["retry-after"]) == (503, "5")
    assert error_of(await got.read()) == ("the gateway is stopping", "overloaded_error", 503)


async def test_at_the_end_a_request_before_the_fleet_is_known_is_told_so(start_gateway, until):
    front = await start_gateway(synced=False)
    asking = asyncio.create_task(front.ask())
    await until(lambda: front.gateway.shared.guards)
    front.gateway.stop()
    status, body = await asking
    assert (status, error_of(body)[0]) == (503, "the gateway is stopping")


async def test_an_error_of_one_engine_and_a_reset_of_another(start_engine, start_gateway):
    """The engine's own word is passed on, whichever came first."""

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
    account = front.gateway.shared.accounts.of("default/chat")
    assert (account.failed, account.ended, account.shed) == (6, 0, 0)


async def test_first_bytes_that_do_not_come_eject_no_more_than_half(start_engine, start_gateway):
    """Engines that time out accept connections, so at most half of them are ejected."""
    engines = [await start_engine(silent) for _ in range(2)]
    front = await start_gateway(*engines, first_byte_timeout_s=0.02)
    loads = front.gateway.shared.loads
    for _ in range(12):
        assert (await front.ask())[0] == 504
    assert len(loads.suspects) == 2
    ejected = loads.ejected([e.endpoint() for e in engines], front.gateway.shared.now())
    assert len(ejected) == 1


@pytest.mark.parametrize(
    ("limit", "is_suspect"), [("between_chunks_timeout_s", True), ("total_timeout_s", False)]
)
async def test_a_stream_that_stands_still_is_its_engines_failure(
    start_engine, start_gateway, limit, is_suspect
):
    """But for one whose total time is over: the engine may have done all it could."""

    async def stands_still(request):
        await request.head()
        await request.chunk(EVENT)
        await asyncio.Event().wait()

    front = await start_gateway(await start_engine(stands_still), **{limit: 0.05})
    assert (await front.ask())[0] == 200
    await front.idle()
    assert front.gateway.shared.loads.suspects == ({"default/engine-0"} if is_suspect else set())


@pytest.mark.parametrize(("ended_by", "errors"), [("timeout", 1), ("shutdown", 0)])
async def test_whose_fault_an_end_from_outside_is(
    start_engine, start_gateway, make_service, until, ended_by, errors
):
    engines = [await start_engine(silent), await start_engine(silent, "r2")]
    limits = {"first_byte_timeout_s": 0.1} if ended_by == "timeout" else {}
    front = await start_gateway(**limits)
    front.show(make_service(*engines, weights={"r1": 100}))
    asking = asyncio.create_task(front.ask())
    await engines[0].arrived.wait()
    if ended_by == "shutdown":
        front.gateway.stop()
    assert (await asking)[0] in (503, 504)
    await front.idle()
    account = front.gateway.shared.accounts.of("default/chat")
    assert (account.failed, account.shed) == (1, 0)
    assert account.arm("default/engine-0").snapshot().errors == errors
    assert bool(front.gateway.shared.loads.suspects) == bool(errors)


async def test_tokens_in_flight_are_those_of_the_request(start_engine, start_gateway, until):
    engine = await start_engine(silent)
    front = await start_gateway(engine)
    asking = asyncio.create_task(front.ask(prompt="x" * 400))
    await until(lambda: engine.active)
    assert front.gateway.shared.loads.tokens == {"default/engine-0": 100 + 256}
    assert front.gateway.shared.open_requests.of("default/chat") == 1
    asking.cancel()
    await front.idle()
    assert front.gateway.shared.open_requests.total == 0


async def test_a_kept_user_stays_where_they_are(start_engine, start_gateway, make_service):
    engines = [await start_engine(), await start_engine(revision="r2")]
    front = await start_gateway()
    service = make_service(*engines, weights={"r1": 50, "r2": 50})
    front.show(replace(service, sticky_by="User"))
    for _ in range(20):
        await front.ask(stream=False, user="ada")
    assert sorted(len(engine.requests) for engine in engines) == [0, 20]
    front.show(service)
    for _ in range(30):
        await front.ask(stream=False, user="ada")
    assert min(len(engine.requests) for engine in engines) > 0


async def test_a_chat_has_an_event_that_opens_it(start_engine, start_gateway):
    """Five events come: in a chat four of them are tokens."""
    front = await start_gateway(await start_engine())
    for path, tokens in (("/v1/chat/completions", 4), ("/v1/completions", 4 + 5)):
        await front.ask(path)
        await front.idle()
        assert front.gateway.shared.accounts.of("default/chat").output_tokens == tokens


async def test_what_an_engine_is_told_of_the_objective(start_engine, start_gateway, make_service):
    engine = await start_engine()
    front = await start_gateway()
    for tpot_s, expected in ((0.05, "0.05"), (2.0, "2"), (1e-05, "1e-05")):
        front.show(make_service(engine, objectives=Objectives(30.0, tpot_s)))
        assert (await front.ask())[0] == 200
        assert engine.requests[-1].headers["x-penstock-tpot-s"] == expected


async def test_the_name_that_its_engines_know(start_engine, start_gateway, make_service):
    engine = await start_engine()
    front = await start_gateway()
    front.show(make_service(engine, served_name="Qwen3"))
    assert (await front.ask(model="default/Qwen3"))[0] == 200
    assert json.loads(engine.requests[0].body)["model"] == "Qwen3"
    assert (await front.ask(model="chat"))[0] == 404


async def test_a_draining_gateway_lets_go_of_connections(start_engine, start_gateway):
    front = await start_gateway(await start_engine())
    async with front.post(stream=False) as got:
        await got.read()
        assert "connection" not in got.headers
    front.gateway.drain()
    for stream in (True, False):
        async with front.post(stream=stream) as got:
            await got.read()
            assert got.headers["connection"] == "close"


async def test_an_answer_that_was_redirected_to_the_other_side_counts_there(
    start_engine, start_gateway, make_service
):
    """An engine that left the traffic before it failed is not charged."""
    stable, other = await start_engine(), await start_engine(revision="r2")
    front = await start_gateway()
    both = make_service(stable, other, weights={"r1": 100, "r2": 0})
    front.show(both)

    async def leaves_then_fails(request):
        front.show(replace(both, weights={Side("r1"): 0, Side("r2"): 100}))
        await request.whole(b"{}", "500 Internal Server Error")

    stable.behaviour = leaves_then_fails
    assert (await front.ask())[0] == 200
    await front.idle()
    arms = front.gateway.shared.accounts.of("default/chat").arms()
    assert {pod: (arm.requests, arm.errors) for pod, arm in arms.items()} == {
        "default/engine-1": (1, 0)
    }


async def test_how_the_server_is_set_up(start_gateway):
    front = await start_gateway(drain_timeout_s=7.9)
    config = server_for(front.gateway).config
    assert (config.host, config.port) == ("127.0.0.1", 0)
    assert config.timeout_graceful_shutdown == 7 + LAST_WORDS_S
    # Longer than the idle time of most clients and load balancers.
    assert config.timeout_keep_alive == 75
    assert (config.access_log, config.server_header, config.proxy_headers) == (False,) * 3
    assert (config.ws, config.lifespan, config.backlog) == ("none", "off", 4096)
    async with front.client.get(front.url + "/healthz") as got:
        assert "server" not in got.headers
    assert front.server.port == front.port > 0


def test_the_lag_of_the_event_loop_is_measured(run_virtually):
    """A callback that takes 3 s makes whatever was due meanwhile late."""

    async def main():
        loop, settings = asyncio.get_running_loop(), GatewaySettings()
        async with Upstream(settings) as upstream:
            gateway = Gateway(Fleet(), upstream, settings)
            beating = asyncio.create_task(_beat(gateway))
            assert gateway.loop_lag_s == 0.0
            gateway.loop_lag_s = -1.0
            await asyncio.sleep(0.7)
            assert gateway.loop_lag_s == pytest.approx(0.0, abs=1e-6)
            loop.now_s += 3.0
            await asyncio.sleep(0.1)
            assert gateway.loop_lag_s == pytest.approx(2.7, abs=1e-6)
            await asyncio.sleep(0.6)
            assert gateway.loop_lag_s == pytest.approx(0.0, abs=1e-6)
            beating.cancel()

    run_virtually(main)


async def test_a_client_that_pauses_is_not_an_engine_that_does(start_engine, start_gateway, until):
    """Only the engine has to send something again and again."""
    num_sent = 0

    async def large(request):
        nonlocal num_sent
        await request.head()
        for _ in range(8):
            await request.chunk(b"data: " + b"x" * 2_000_000 + b"\n\n")
            num_sent += 1
        await request.chunk(DONE)
        await request.end()

    front = await start_gateway(await start_engine(large), between_chunks_timeout_s=0.2)
    async with front.post() as got:
        await asyncio.sleep(0.8)
        assert num_sent < 8
        body = await got.read()
    assert len(body) == 8 * 2_000_008 + len(DONE)
    assert body.endswith(DONE)
    assert await front.metric("penstock_gateway_streams_cut_total") == 0


async def test_the_time_of_a_client_that_pauses_is_no_pace(start_engine, start_gateway, until):
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
    seen = front.gateway.shared.accounts.of("default/chat").reading(0.0, now_s)
    assert (seen.ended, seen.ttft_s.count, seen.tpot_s.count) == (1, 1, 0)


async def test_at_the_end_a_client_that_does_not_read_is_cut_like_any_other(
    start_engine, start_gateway, until
):
    async def endless(request):
        await request.head()
        while True:
            await request.chunk(b"data: " + b"x" * 2_000_000 + b"\n\n")

    front = await start_gateway(await start_engine(endless))
    async with front.post() as got:
        await asyncio.sleep(0.3)
        front.gateway.stop()
        assert b"the gateway is stopping" in await got.read()
    await front.idle()
    assert await front.metric("penstock_gateway_streams_cut_total", cause="shutdown") == 1
    assert await front.metric("penstock_gateway_disconnects_total") == 0


async def test_a_large_whole_answer_that_breaks_off_has_no_end(start_engine, start_gateway):
    """Neither the last chunk nor an event, which would be a part of it."""

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


async def test_a_whole_answer_to_who_asked_for_a_stream(start_engine, start_gateway):
    """Its first byte is its last: it tells no time to the first token."""

    async def whole(request):
        await request.whole(b'{"usage": {"prompt_tokens": 9, "completion_tokens": 5}}')

    front = await start_gateway(await start_engine(whole))
    assert (await front.ask(stream=True))[0] == 200
    await front.idle()
    seen = front.gateway.shared.accounts.of("default/chat").reading(0.0, 0.0)
    assert (seen.ended, seen.output_tokens, seen.ttft_s.count, seen.tpot_s.count) == (1, 5, 0, 0)


async def test_a_stream_that_begins_clears_failures_before_it(start_engine, start_gateway, until):
    """And one whose answer broke off before has to end first."""
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
    loads = front.gateway.shared.loads
    for fault, is_cleared in (("reset", True), ("break off", False)):
        do[0] = fault
        await front.ask()
        await front.idle()
        assert loads.suspects == {"default/engine-0"}
        do[0] = "answer"
        go.clear()
        async with front.post() as got:
            assert await got.content.readany() == EVENT
            assert (loads.suspects == set()) == is_cleared
            go.set()
            assert await got.read() == DONE
        await front.idle()
        assert loads.suspects == set()
