"""Statistics of each engine in the stats report, while a service has two sides to compare."""

import asyncio
import json
import math

import pytest
from tests.gateway.engine_answers import DONE
from tests.support.gateway_callers import api_key, bearer, let_in, tenant

from penstock.clients.pods.stats_report import PATH, parse
from penstock.core.canary.arm import NO_REQUESTS
from penstock.core.canary.bins import NUM_BINS, NUM_TPOT_BINS, tpot_bin, ttft_bin
from penstock.core.canary.moments import Moments
from penstock.core.routing.pick import Side
from penstock.core.spec.objectives import Objectives
from penstock.core.tenants.tenant import Access

CHAT = "/v1/chat/completions"
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":300,"completion_tokens":%d,'
    b'"prompt_tokens_details":{"cached_tokens":256}}}\n\n'
)


def event_of(text):
    return b'data: {"choices":[{"delta":{"content":%s}}]}\n\n' % json.dumps(text).encode()


def responding(*chunks, pause_s=0.0):
    async def behave(request):
        await request.head()
        for chunk in chunks:
            await request.chunk(chunk)
            await asyncio.sleep(pause_s)
        await request.end()

    return behave


async def broken(request):
    await request.head()
    await request.chunk(event_of("a"))
    request.reset()


def failing_late(code):
    arms_of = b'data: {"error":{"message":"no","type":"E","param":null,"code":%d}}\n\n' % code
    return responding(event_of("a"), arms_of, DONE)


async def failing(request):
    await request.whole(b"{}", status="500 Internal Server Error")


async def refusing(request):
    await request.whole(b"{}", status="422 Unprocessable Entity")


async def draining(request):
    await request.whole(b"{}", status="503 Service Unavailable")


async def arms_of(front):
    await front.idle()
    async with front.client.get(front.management_url + PATH) as got:
        return parse("g", await got.text()).arms


@pytest.fixture
async def pair(start_engine, start_gateway, make_service):
    """`await pair(behavior, …)` -> a gateway for an engine with this behavior, and for one of another
    revision that gets no traffic."""

    async def make(behavior, objectives=None, weights=None, **settings):
        engines = [await start_engine(behavior, "r1"), await start_engine(revision="r2")]
        front = await start_gateway(**settings)
        front.publish(make_service(*engines, objectives=objectives, weights=weights))
        return front

    return make


async def arm_after(front, stream=True, **fields):
    await front.ask(CHAT, stream=stream, **fields)
    return (await arms_of(front))["default/chat"].get("default/engine-0", NO_REQUESTS)


async def test_stream_counts_outcome_tokens_and_latency(pair):
    front = await pair(
        responding(event_of(""), event_of("a"), event_of("b"), USAGE % 2, DONE, pause_s=0.01)
    )
    arm = await arm_after(front)
    assert (arm.requests, arm.errors, arm.empty_outputs, arm.violations) == (1, 0, 0, 0)
    assert (arm.prompt_tokens, arm.cached_tokens) == (300, 256)
    assert arm.output.total == pytest.approx(math.log(2))
    its_bin = ttft_bin(300, 0)
    its_tpot_bin = tpot_bin(300, 0)
    assert [m.n for m in arm.ttft] == [i == its_bin for i in range(NUM_BINS)]
    assert [m.n for m in arm.tpot] == [i == its_tpot_bin for i in range(NUM_TPOT_BINS)]
    assert arm.overall.n == 1
    assert 0.01 < math.exp(arm.tpot[its_tpot_bin].mean) < 5
    assert 0 < math.exp(arm.ttft[its_bin].mean) < 5


async def test_requests_ahead_are_those_without_a_first_byte(pair):
    """Three concurrent requests are sent before any of them has a first byte."""
    held = asyncio.Event()

    async def hold(request):
        await held.wait()
        await responding(event_of("a"), event_of("b"), USAGE % 2, DONE)(request)

    front = await pair(hold, weights={"r1": 100, "r2": 0})
    requests = [asyncio.create_task(front.ask(CHAT, stream=True)) for _ in range(3)]
    await asyncio.sleep(0.2)
    held.set()
    await asyncio.gather(*requests)
    arm = (await arms_of(front))["default/chat"]["default/engine-0"]
    assert {i: m.n for i, m in enumerate(arm.ttft) if m.n} == {
        ttft_bin(300, 0): 1, ttft_bin(300, 1): 1, ttft_bin(300, 2): 1,
    }  # fmt: skip
    assert [m.n for m in arm.missed] == [1, 1, 1, 0, 0, 0]


async def two_tokens(request, started, end):
    """Stream two tokens: call started() after the first, and send the second when `end` is set."""
    await request.head()
    await request.chunk(event_of("a"))
    started()
    await end.wait()
    for chunk in (event_of("b"), USAGE % 2, DONE):
        await request.chunk(chunk)
    await request.end()


async def test_concurrent_requests_count_for_tpot_but_not_for_ttft(pair):
    """The second request starts and ends during the first one's response. The first starts and ends alone."""
    is_started, held = asyncio.Event(), asyncio.Event()

    async def hold(request):
        if is_started.is_set():
            await responding(event_of("a"), event_of("b"), USAGE % 2, DONE)(request)
            return
        await two_tokens(request, is_started.set, held)

    front = await pair(hold, weights={"r1": 100, "r2": 0})
    first = asyncio.create_task(front.ask(CHAT, stream=True))
    await is_started.wait()
    await asyncio.sleep(0.2)
    await front.ask(CHAT, stream=True)
    held.set()
    await first
    arm = (await arms_of(front))["default/chat"]["default/engine-0"]
    assert {i: m.n for i, m in enumerate(arm.ttft) if m.n} == {ttft_bin(300, 0): 2}
    assert {i: m.n for i, m in enumerate(arm.tpot) if m.n} == {
        tpot_bin(300, 0): 1, tpot_bin(300, 1): 1,
    }  # fmt: skip


async def test_concurrency_is_the_mean_of_start_and_end(pair):
    """The first starts alone and ends next to two others: 1 in the mean."""
    started, ends = asyncio.Semaphore(0), [asyncio.Event() for _ in range(3)]
    turns = iter(ends)

    async def hold(request):
        await two_tokens(request, started.release, next(turns))

    front = await pair(hold, weights={"r1": 100, "r2": 0})
    requests = []
    for _ in ends:
        requests.append(asyncio.create_task(front.ask(CHAT, stream=True)))
        await started.acquire()
    for end, task in zip(ends, requests, strict=True):
        end.set()
        await task
        await asyncio.sleep(0.1)  # the gateway sees the end a little later
    arm = (await arms_of(front))["default/chat"]["default/engine-0"]
    # (0 + 2) / 2, (1 + 1) / 2, (2 + 0) / 2
    assert {i: m.n for i, m in enumerate(arm.tpot) if m.n} == {tpot_bin(300, 1): 3}


def with_tenants(front, *names):
    """Let only these tenants in. Returns the headers with a key of each."""
    keys = {name: api_key(number) for number, name in enumerate(names)}
    let_in(front.gateway, *(tenant(name, Access("default")) for name in names), keys=keys)
    return {name: bearer(key) for name, key in keys.items()}


async def stream_with(front, headers):
    body = {"model": "chat", "stream": True}
    async with front.client.post(front.url + CHAT, json=body, headers=headers) as got:
        await got.read()
    await front.idle()


async def test_tenants_are_counted_by_their_names(pair):
    front = await pair(
        responding(event_of("a"), event_of("b"), USAGE % 2, DONE), weights={"r1": 100}
    )
    await stream_with(front, {})
    assert (await arms_of(front))["default/chat"]["default/engine-0"].tenants == {}
    keys = with_tenants(front, "acme", "other")
    for name in ("acme", "other", "acme"):
        await stream_with(front, keys[name])
    arm = (await arms_of(front))["default/chat"]["default/engine-0"]
    assert {name: each.requests for name, each in arm.tenants.items()} == {"acme": 2, "other": 1}
    assert arm.tenants["acme"].ttft.n == 2
    assert arm.requests == 4


async def test_tenants_are_not_counted_with_one_side(start_engine, start_gateway, make_service):
    """Tenants of a service with one side would fill the bounded table."""
    engines = [await start_engine(), await start_engine(revision="r2")]
    front = await start_gateway()
    keys = with_tenants(front, "of-1", "of-2")
    for with_engines in (engines[:1], engines):
        front.publish(make_service(*with_engines, weights={"r1": 100}))
        await stream_with(front, keys[f"of-{len(with_engines)}"])
    arm = (await arms_of(front))["default/chat"]["default/engine-0"]
    assert (arm.requests, set(arm.tenants)) == (2, {"of-2"})


@pytest.mark.parametrize(
    ("behavior", "stream", "empty"),
    [
        (responding(event_of(""), USAGE % 1, DONE), True, 1),
        (responding(event_of("a"), DONE), True, 0),
        (responding(b'data: {"choices":[{"text":""}]}\n\n', DONE), True, 1),
        (
            responding(b'data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}\n\n', DONE),
            True,
            0,
        ),
        (lambda r: r.whole(b'{"choices":[{"message":{"content":""}}]}'), False, 1),
        (lambda r: r.whole(b'{"choices":[{"message":{"content":null}}]}'), False, 1),
        (lambda r: r.whole(b'{"choices":[{"message":{"content":"x"}}]}'), False, 0),
        (lambda r: r.whole(b'{"choices":[{"message":{"content":" \\n\\t"}}]}'), False, 1),
        (lambda r: r.whole(b'{"choices":[{"message":{"content":" \\n\\t{"}}]}'), False, 0),
        (lambda r: r.whole(b'{"choices":[{"message":{"content":"\\\\n"}}]}'), False, 0),
        (responding(event_of(" "), event_of("\n"), event_of("x"), DONE), True, 0),
        (responding(event_of(" "), event_of("\n"), DONE), True, 1),
    ],
)
async def test_empty_responses(pair, behavior, stream, empty):
    arm = await arm_after(await pair(behavior), stream)
    assert (arm.requests, arm.empty_outputs, arm.errors) == (1, empty, 0)


@pytest.mark.parametrize(
    ("behavior", "errors"),
    [
        (broken, 1),
        (failing, 1),
        (draining, 1),
        (refusing, 0),
        (failing_late(500), 1),
        (
            responding(
                event_of("a"), b'event: error\ndata: {"type": "error", "error": {}}\n\n', DONE
            ),
            1,
        ),
    ],
)
async def test_errors_of_an_engine(pair, behavior, errors):
    front = await pair(behavior, max_attempts=1)
    arm = await arm_after(front)
    assert (arm.requests, arm.errors, arm.violations) == (errors, errors, errors)


async def test_unreachable_only_engine_is_an_error(start_engine, start_gateway, make_service):
    engines = [await start_engine(), await start_engine(revision="r2")]
    front = await start_gateway(wait_for_endpoint_s=0.01)
    front.publish(make_service(*engines))
    await engines[0].stop()
    arm = await arm_after(front)
    assert (arm.requests, arm.errors) == (1, 1)


async def test_503_of_an_engine_without_traffic_is_no_error(pair):
    """The second engine's latency counts from the refusal of the first one."""

    async def slowly_refuse(request):
        await asyncio.sleep(0.5)
        await draining(request)

    front = await pair(slowly_refuse, weights={"r1": 100, "r2": 0})
    service = front.snapshots.current.services[0]
    requests = asyncio.create_task(front.ask(CHAT))
    await asyncio.sleep(0.1)
    front.publish(
        type(service)(**{f: getattr(service, f) for f in FIELDS} | {"weights": {Side("r2"): 1}})
    )
    assert (await requests)[0] == 200
    arms = (await arms_of(front))["default/chat"]
    assert "default/engine-0" not in arms
    (second,) = arms.values()
    assert (second.requests, second.errors) == (1, 0)
    (ttft,) = [m for m in second.ttft if m.n]
    assert math.exp(ttft.mean) < 0.4


FIELDS = ("namespace", "name", "served_name", "created_s", "endpoints", "objectives", "sides")


async def test_disconnect_is_no_error(pair, until):
    front = await pair(responding(*[event_of("a")] * 500, pause_s=0.01))
    async with front.post() as got:
        await got.content.readany()
        got.close()
    assert (await arms_of(front))["default/chat"] == {}


async def test_shutdown_is_no_error_of_the_engine(pair, until):
    front = await pair(responding(*[event_of("a")] * 500, pause_s=0.01))
    async with front.post() as got:
        await got.content.readany()
        front.gateway.cancel_requests()
        assert b"the gateway is stopping" in await got.read()
    assert (await arms_of(front))["default/chat"] == {}


@pytest.mark.parametrize(
    ("ttft_s", "tpot_s", "stream", "violations"),
    [
        (5, 5, True, 0),
        (0.001, 5, True, 1),
        (5, 0.001, True, 1),
        (5, 5, False, 0),
        (1e-4, 1e-4, False, 1),
    ],
)
async def test_missed_objectives(pair, ttft_s, tpot_s, stream, violations):
    async def slow(request):
        await asyncio.sleep(0.02)
        if request.is_stream:
            await responding(event_of("a"), event_of("b"), event_of("c"), DONE, pause_s=0.02)(
                request
            )
        else:
            await request.whole(b'{"choices":[{"text":"x"}],"usage":{"completion_tokens":3}}')

    arm = await arm_after(await pair(slow, Objectives(ttft_s, tpot_s)), stream)
    assert (arm.requests, arm.violations) == (1, violations)
    assert arm.missed[0] == Moments(1, violations, violations)


async def test_service_with_one_side_reports_no_arms(start_engine, start_gateway):
    front = await start_gateway(await start_engine())
    await front.ask(CHAT)
    assert await arms_of(front) == {}


async def test_earlier_counts_are_reported_once_there_are_two_sides(
    start_engine, start_gateway, make_service
):
    engines = [await start_engine(), await start_engine(revision="r2")]
    front = await start_gateway(engines[0])
    await front.ask(CHAT)
    front.publish(make_service(*engines))
    assert (await arms_of(front))["default/chat"]["default/engine-0"].requests == 1


async def test_deleted_engine_is_dropped(start_engine, start_gateway, make_service):
    engines = [await start_engine(), await start_engine(revision="r2")]
    front = await start_gateway()
    front.publish(make_service(*engines, weights={"r1": 1, "r2": 0}))
    await front.ask(CHAT)
    assert set((await arms_of(front))["default/chat"]) == {"default/engine-0"}
    front.publish(make_service(engines[1], await start_engine(), weights={"r1": 1}))
    assert (await arms_of(front))["default/chat"] == {}
