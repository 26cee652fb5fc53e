"""Token and throughput estimates learn only from responses without error, and from each only a little.

The gateway's clock advances only when an engine computes a prompt.
"""

import asyncio
import json
import socket

import pytest
from tests.gateway.engine_answers import DONE, EVENT

from penstock.clients.pods.stats_report import PATH, parse
from penstock.core.routing.pick import Side
from penstock.core.spec.objectives import Objectives

PROMPT = "x" * 40_000  # most of its time is that of its tokens
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":10000,"completion_tokens":3}}\n\n'


class Clock:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


class Prefills:
    """An engine that takes 0.2 s of the clock for each prompt; the `user` of a request makes it fail."""

    def __init__(self, clock):
        self.clock = clock
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, request):
        match json.loads(request.body).get("user"):
            case "refused":
                await request.whole(b"{}", "400 Bad Request")
                return
            case "error event":
                await request.head()
                await request.chunk(b'data: {"error": {"message": "no", "code": 400}}\n\n' + DONE)
                await request.end()
                return
        await self.gate.wait()
        self.clock.now_s += 0.2
        await request.head()
        for chunk in (EVENT, EVENT, EVENT, USAGE, DONE):
            await request.chunk(chunk)
        await request.end()


@pytest.fixture
async def learned_gateway(start_engine, start_gateway, make_service):
    """A gateway that has learned that two prompts of 0.2 s fit the objective, its engine and behavior."""
    clock = Clock()
    behavior = Prefills(clock)
    engine = await start_engine(behavior)
    front = await start_gateway(now=clock)
    front.publish(make_service(engine, objectives=Objectives(0.61, 0.5)))
    for _ in range(20):
        assert (await front.ask(prompt=PROMPT))[0] == 200
    return front, engine, behavior


async def burst_at_engine(front, engine, behavior, until):
    """Send 12 requests. Returns how many reach the engine before it answers any."""
    await front.idle()
    behavior.gate.clear()
    requests = [asyncio.create_task(front.ask(prompt=PROMPT)) for _ in range(12)]
    await until(lambda: engine.active + front.gateway.state.waiting == 12)
    active = engine.active
    behavior.gate.set()
    assert [status for status, _ in await asyncio.gather(*requests)] == [200] * 12
    return active


async def test_blanks_between_json_values_are_no_prompt(learned_gateway, until):
    front, engine, behavior = learned_gateway
    body = (
        b'{"model": "chat", "stream": true,' + b" " * 900_000 + b'"prompt": "%s"}' % (b"x" * 40_000)
    )
    kind = {"content-type": "application/json"}
    async with front.client.post(front.url + "/v1/completions", data=body, headers=kind) as got:
        assert got.status == 200
        await got.read()
    assert front.gateway.state.stats.get("default/chat").token_estimates.get("").of(
        40_000
    ) == pytest.approx(10_000, rel=0.05)
    assert await burst_at_engine(front, engine, behavior, until) == 2


async def test_single_response_moves_the_token_estimate_little(learned_gateway, until):
    """The engine reports 10,000 tokens for 900,000 blanks in the prompt."""
    front, _, _ = learned_gateway
    estimate = front.gateway.state.stats.get("default/chat").token_estimates.get("")
    assert (await front.ask(prompt=" " * 900_000))[0] == 200
    await front.idle()
    after = front.gateway.state.stats.get("default/chat").token_estimates.get("")
    assert 0.94 * estimate.of(10_000) < after.of(10_000) <= estimate.of(10_000)


async def test_prompts_with_images_do_not_change_the_token_estimate(learned_gateway):
    """Reported tokens include those of images."""
    front, _, _ = learned_gateway
    before = front.gateway.state.stats.get("default/chat").token_estimates.get("")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    content = [{"type": "text", "text": "y" * 600}, image]
    for _ in range(20):
        assert (await front.ask(messages=[{"role": "user", "content": content}]))[0] == 200
    await front.idle()
    assert front.gateway.state.stats.get("default/chat").token_estimates.get("") == before


@pytest.mark.parametrize("user", ["refused", "error event"])
async def test_refused_stream_does_not_change_the_throughput(learned_gateway, until, user):
    front, engine, behavior = learned_gateway
    queue = front.gateway.state.admission_queues.get("default/chat", Side("r1"))
    before = queue._loads["default/engine-0"].kind.model
    for _ in range(10):
        await front.ask(prompt=PROMPT, user=user)
    await front.idle()
    assert queue._loads["default/engine-0"].kind.model == before
    assert await burst_at_engine(front, engine, behavior, until) == 2


async def test_attended_tokens(start_engine, start_gateway):
    """Three output tokens after a prompt of 10,000 attend to it and to those before."""
    clock = Clock()
    front = await start_gateway(await start_engine(Prefills(clock)), now=clock)
    await front.ask(prompt=PROMPT)
    await front.idle()
    async with front.client.get(front.management_url + PATH) as got:
        stats = parse("g", await got.text()).services["default/chat"]
    assert (stats.output_tokens, stats.attended_tokens) == (3, 10_000 + 10_001 + 10_002)


async def test_latency_counts_from_the_end_of_the_upload(start_engine, start_gateway, until):
    clock = Clock()
    front = await start_gateway(await start_engine(Prefills(clock)), now=clock)
    body = json.dumps({"model": "chat", "stream": True, "prompt": PROMPT}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode())
    writer.write(body[:10])
    await writer.drain()
    await asyncio.sleep(0.05)
    clock.now_s += 100.0
    writer.write(body[10:])
    assert (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()
    await front.idle()
    async with front.client.get(front.management_url + PATH) as got:
        stats = parse("g", await got.text()).services["default/chat"]
    assert stats.ttft_s.total == pytest.approx(0.2)
    taken = "penstock_gateway_time_to_first_byte_seconds_sum"
    assert await front.metric(taken) == pytest.approx(0.2)


async def test_stalled_client_is_no_error_of_the_engine(
    start_engine, start_gateway, make_service, until
):
    async def endless(request):
        await request.head()
        while True:
            await request.chunk(b"data: " + b"x" * 60_000 + b"\n\n")

    engine, other = await start_engine(endless), await start_engine(revision="r2")
    front = await start_gateway(total_timeout_s=2.0)
    front.publish(make_service(engine, other, weights={"r1": 100}))
    body = json.dumps({"model": "chat", "stream": True}).encode()
    # A small receive buffer is full after a few chunks, long before the timeout.
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", front.port))
    _, writer = await asyncio.open_connection(sock=client, limit=1024)
    head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    await engine.arrived.wait()
    await front.idle()
    async with front.client.get(front.management_url + PATH) as got:
        report = parse("g", await got.text())
    stats = report.services["default/chat"]
    assert (stats.arrivals, stats.failed, stats.ended, stats.in_flight) == (1, 0, 0, 0)
    assert report.arms["default/chat"] == {}
    writer.transport.abort()
    assert await front.metric("penstock_gateway_disconnects_total", phase="streaming") == 1
