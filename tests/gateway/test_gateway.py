"""The gateway over real sockets: a real engine-shaped upstream with every fault, real disconnects."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import httpx
import pytest
import uvicorn
from aiohttp import web

from penstock.core.routing import Endpoint
from penstock.gateway.app import Gateway, build_app
from penstock.gateway.director import Director
from penstock.gateway.fleet import Found, Service, Unknown
from penstock.gateway.relay import Relay
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.telemetry import Telemetry
from penstock.gateway.upstream import Upstream

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
BODY = {"model": "chat", "messages": [{"role": "user", "content": "x"}], "stream": True}
KEY = ("default", "chat")


class KnownFleet:
    """The fleet's interface over pods that a test states; the watch has tests of its own."""

    is_synced = True

    def __init__(self) -> None:
        self.service = Service(KEY, "chat", {"r1": 100}, ())
        self._changed = asyncio.Event()

    def set(self, *endpoints: Endpoint) -> None:
        self.service = Service(KEY, "chat", self.service.weights, endpoints)
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        await self._changed.wait()

    def models(self) -> list[tuple[str, tuple[str, str]]]:
        return [("chat", KEY)]

    def resolve(self, model: str) -> Found | Unknown:
        if model == "twice":
            return Unknown(("a/twice", "b/twice"))
        return Found(self.service) if model in ("chat", "default/chat") else Unknown()

    def snapshot(self, key: tuple[str, str]) -> Service | None:
        return self.service if key == KEY else None


class World:
    """A gateway on a real port, and engines on real ports."""

    def __init__(self, url: str, fleet: KnownFleet, gateway: Gateway) -> None:
        self.url = url
        self.fleet = fleet
        self.gateway = gateway
        self.runners: list[web.AppRunner] = []

    async def engine(self, name: str, handler: Handler) -> Endpoint:
        async def entry(request: web.Request) -> web.StreamResponse:
            return await handler(request)

        app = web.Application()
        app.router.add_post("/v1/{tail:.*}", entry)
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.runners.append(runner)
        port = runner.addresses[0][1]
        return Endpoint(name, f"127.0.0.1:{port}", "r1")

    def result(self, label: str) -> float:
        value = self.gateway.telemetry.registry.get_sample_value(
            "penstock_gateway_requests_total", {"service": "default/chat", "result": label}
        )
        return value or 0.0


@asynccontextmanager
async def world(**changes: Any) -> AsyncIterator[World]:
    settings = GatewaySettings(**({"wait_for_endpoint_s": 2.0, "connect_timeout_s": 0.5} | changes))
    telemetry, fleet, upstream = Telemetry(), KnownFleet(), Upstream(settings)
    director = Director(fleet, upstream, settings, telemetry)  # type: ignore[arg-type]
    relay = Relay(fleet, director, settings, telemetry)  # type: ignore[arg-type]
    gateway = Gateway(fleet, relay, telemetry)  # type: ignore[arg-type]
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(build_app(gateway), log_level="error", http="h11", lifespan="off")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve(sockets=[listener]))
    made = World(f"http://127.0.0.1:{listener.getsockname()[1]}", fleet, gateway)
    try:
        while not server.started:  # noqa: ASYNC110 - uvicorn offers no event
            await asyncio.sleep(0.01)
        yield made
    finally:
        server.should_exit = True
        await serving
        for runner in made.runners:
            await runner.cleanup()
        await upstream.close()
        listener.close()


def event(text: str) -> bytes:
    return f"data: {json.dumps({'text': text})}\n\n".encode()


async def streaming(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    for text in ("one", "two"):
        await answer.write(event(text))
    await answer.write(b"data: [DONE]\n\n")
    return answer


async def whole(_: web.Request) -> web.StreamResponse:
    return web.json_response({"ok": True})


async def cut_after_one(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    await answer.write(event("one"))
    await asyncio.sleep(0.05)
    assert request.transport is not None
    request.transport.abort()
    return answer


async def dies_before_a_byte(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def draining(_: web.Request) -> web.StreamResponse:
    return web.json_response({"error": {}}, status=503, headers={"Retry-After": "1"})


async def hangs(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


def nobody(name: str = "gone") -> Endpoint:
    """An address where no one listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Endpoint(name, f"127.0.0.1:{probe.getsockname()[1]}", "r1")


async def post(made: World, body: Any = BODY, path: str = "/v1/chat/completions") -> httpx.Response:
    async with httpx.AsyncClient(timeout=20) as client:
        return await client.post(made.url + path, json=body)


async def settled(done: Callable[[], bool]) -> None:
    """The gateway counts a request when it has told its client the end."""
    for _ in range(250):
        if done():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("not within 5 s")


async def test_a_stream_is_relayed_byte_for_byte() -> None:
    async with world() as made:
        made.fleet.set(await made.engine("a", streaming))
        answer = await post(made)
    assert answer.content == event("one") + event("two") + b"data: [DONE]\n\n"
    assert answer.headers["content-type"].startswith("text/event-stream")


async def test_the_engine_sees_the_body_but_not_the_key() -> None:
    seen: dict[str, Any] = {}

    async def look(request: web.Request) -> web.StreamResponse:
        seen.update(
            headers={k.lower(): v for k, v in request.headers.items()}, body=await request.json()
        )
        return await whole(request)

    async with world() as made:
        made.fleet.set(await made.engine("a", look))
        async with httpx.AsyncClient() as client:
            headers = {"Authorization": "Bearer secret", "X-Request-Id": "abc"}
            body = BODY | {"model": "default/chat", "stream": False}
            await client.post(f"{made.url}/v1/chat/completions", json=body, headers=headers)
    assert "authorization" not in seen["headers"]
    assert seen["headers"]["x-request-id"] == "abc"
    assert seen["body"]["model"] == "chat"


@pytest.mark.parametrize("first", ["refuses", "dies", "drains"])
@pytest.mark.parametrize("stream", [True, False])
async def test_what_fails_before_the_first_byte_is_served_by_a_neighbour(
    first: str, stream: bool
) -> None:
    async with world() as made:
        bad = {
            "refuses": nobody("a"),
            "dies": await made.engine("a", dies_before_a_byte),
            "drains": await made.engine("a", draining),
        }[first]
        good = await made.engine("b", streaming if stream else whole)
        made.fleet.set(bad, good)
        answers = [await post(made, BODY | {"stream": stream}) for _ in range(12)]
    assert [answer.status_code for answer in answers] == [200] * 12


async def test_a_stream_cut_after_its_first_byte_ends_with_an_error_event() -> None:
    async with world() as made:
        made.fleet.set(await made.engine("a", cut_after_one))
        answer = await post(made)
        await settled(lambda: made.result("cut") == 1)
    events = [line for line in answer.text.splitlines() if line]
    assert events[-1] == "data: [DONE]"
    assert json.loads(events[-2].removeprefix("data: "))["error"]["type"] == "upstream_error"
    assert event("one") in answer.content


async def test_a_whole_answer_cut_short_is_a_clean_502() -> None:
    async def short(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        answer.content_length = 100
        await answer.prepare(request)
        await answer.write(b'{"half": ')
        await asyncio.sleep(0.05)
        assert request.transport is not None
        request.transport.abort()
        return answer

    async with world() as made:
        made.fleet.set(await made.engine("a", short))
        answer = await post(made, BODY | {"stream": False})
    assert answer.status_code == 502
    assert answer.json()["error"]["code"] == 502


@pytest.mark.parametrize(
    ("handler", "limits", "status"),
    [
        (hangs, {"first_byte_timeout_s": 0.2}, 504),
        (hangs, {"total_timeout_s": 0.2}, 504),
    ],
)
async def test_time_limits_before_the_first_byte(
    handler: Handler, limits: dict[str, float], status: int
) -> None:
    async with world(**limits) as made:
        made.fleet.set(await made.engine("a", handler))
        assert (await post(made)).status_code == status


async def test_silence_between_chunks_ends_the_stream() -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(event("one"))
        await asyncio.sleep(60)
        return answer

    async with world(between_chunks_timeout_s=0.2) as made:
        made.fleet.set(await made.engine("a", silent))
        answer = await post(made)
    assert '"error"' in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")


async def test_a_request_waits_for_a_pod_and_goes_on_when_one_comes() -> None:
    async with world() as made:
        waiting = asyncio.create_task(post(made))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        made.fleet.set(await made.engine("a", streaming))
        assert (await waiting).status_code == 200


async def test_the_wait_and_the_queue_have_ends() -> None:
    async with world(wait_for_endpoint_s=0.3, max_waiting=1) as made:
        first = asyncio.create_task(post(made))
        await asyncio.sleep(0.1)
        second = await post(made)
        assert (second.status_code, second.headers["retry-after"]) == (503, "2")
        assert (await first).status_code == 503


async def test_errors_of_engines_pass_unchanged() -> None:
    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "too long"}}, status=400)

    async with world() as made:
        made.fleet.set(await made.engine("a", refuse))
        answer = await post(made)
    assert (answer.status_code, answer.json()) == (400, {"error": {"message": "too long"}})


@pytest.mark.parametrize("phase", ["waiting", "before the first byte", "streaming", "whole"])
async def test_a_client_that_leaves_cancels_the_engine_in_every_phase(phase: str) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        begun.set()
        try:
            if phase == "streaming":
                answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                await answer.prepare(request)
                await answer.write(event("one"))
            await asyncio.sleep(30)
            return web.Response()
        finally:
            ended.set()

    async with world(wait_for_endpoint_s=30) as made:
        if phase != "waiting":
            made.fleet.set(await made.engine("a", slow))
        async with aiohttp.ClientSession() as client:
            body = BODY | {"stream": phase != "whole"}
            call = asyncio.create_task(client.post(f"{made.url}/v1/chat/completions", json=body))
            if phase == "waiting":
                await asyncio.sleep(0.2)
            else:
                await asyncio.wait_for(begun.wait(), 5)
            await asyncio.sleep(0.1)
            if call.done():
                call.result().close()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        if phase != "waiting":
            await asyncio.wait_for(ended.wait(), 5)
        await settled(lambda: made.result("disconnected") == 1)
        assert made.gateway.relay.in_flight == 0


BAD: list[tuple[bytes, int]] = [
    (b"", 400), (b"{", 400), (b"[]", 400), (b"null", 400), (b'"x"', 400), (b"\xff", 400),
    (b"{}", 400), (b'{"model": null}', 400), (b'{"model": 3}', 400), (b'{"model": ""}', 400),
    (b'{"model": []}', 400), (b'{"model": "nope"}', 404), (b'{"model": "other/chat"}', 404),
    (b'{"model": "twice"}', 400), (b"[" * 50_000, 400), (b'{"model": "' + b"x" * 500 + b'"}', 404),
    (b"x" * (17 << 20), 413),
]  # fmt: skip


async def test_bad_requests_are_refused_by_the_gateway_itself() -> None:
    async with world() as made, httpx.AsyncClient() as client:
        for body, status in BAD:
            for path in ("/v1/chat/completions", "/v1/completions"):
                answer = await client.post(made.url + path, content=body)
                assert answer.status_code == status, body[:40]
                assert answer.json()["error"]["message"]
        choices = await client.post(f"{made.url}/v1/completions", json={"model": "twice"})
        assert "a/twice, b/twice" in choices.text
        assert (await client.get(f"{made.url}/v1/completions")).status_code in (404, 405)
        assert (await client.post(f"{made.url}/v1/other")).status_code == 404
        assert (await client.get(f"{made.url}/v1/models")).json()["data"][0]["id"] == "chat"
        assert (await client.get(f"{made.url}/readyz")).status_code == 200
        made.gateway.draining = True
        assert (await client.get(f"{made.url}/readyz")).status_code == 503
        assert (await client.get(f"{made.url}/healthz")).status_code == 200
        assert "penstock_gateway_requests" in (await client.get(f"{made.url}/metrics")).text


async def test_a_drain_out_of_time_ends_streams_with_an_error_event() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        while True:
            await answer.write(event("more"))
            await asyncio.sleep(0.05)

    async with world() as made:
        made.fleet.set(await made.engine("a", endless))
        call = asyncio.create_task(post(made))
        await asyncio.sleep(0.3)
        made.gateway.relay.closing.set()
        answer = await call
    assert '"error"' in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")
