"""What the gateway tells of each engine while there are two sides to compare."""

import asyncio
import json
import math
from dataclasses import replace

import pytest

from penstock.clients.feed import PATH, parse
from penstock.core.canary.evidence import NUM_BINS, NUM_TPOT_BINS, Arm, tpot_bin, ttft_bin
from penstock.core.canary.moments import Moments
from penstock.core.routing.pick import Side
from penstock.core.spec.objectives import Objectives

CHAT = "/v1/chat/completions"
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":300,"completion_tokens":%d,'
    b'"prompt_tokens_details":{"cached_tokens":256}}}\n\n'
)
DONE = b"data: [DONE]\n\n"


def said(text):
    return b'data: {"choices":[{"delta":{"content":%s}}]}\n\n' % json.dumps(text).encode()


def saying(*chunks, pause_s=0.0):
    async def behave(request):
        await request.head()
        for chunk in chunks:
            await request.chunk(chunk)
            await asyncio.sleep(pause_s)
        await request.end()

    return behave


async def broken(request):
    await request.head()
    await request.chunk(said("a"))
    request.reset()


def failing_late(code):
    told = b'data: {"error":{"message":"no","type":"E","param":null,"code":%d}}\n\n' % code
    return saying(said("a"), told, DONE)


async def failing(request):
    await request.whole(b"{}", status="500 Internal Server Error")


async def refusing(request):
    await request.whole(b"{}", status="422 Unprocessable Entity")


async def draining(request):
    await request.whole(b"{}", status="503 Service Unavailable")


async def told(front):
    await front.idle()
    async with front.client.get(front.url + PATH) as got:
        return parse("g", await got.text()).arms


@pytest.fixture
async def pair(start_engine, start_gateway, make_service):
    """`await pair(behaviour, …)` -> a gateway before it, with an engine of another revision beside
    it that gets nothing."""

    async def make(behaviour, objectives=None, weights=None, **settings):
        engines = [await start_engine(behaviour, "r1"), await start_engine(revision="r2")]
        front = await start_gateway(**settings)
        front.show(make_service(*engines, objectives=objectives, weights=weights))
        return front

    return make


async def arm_after(front, stream=True, **fields):
    await front.ask(CHAT, stream=stream, **fields)
    return (await told(front))["default/chat"].get("default/engine-0", Arm())


async def test_a_sound_stream(pair):
    front = await pair(saying(said(""), said("a"), said("b"), USAGE % 2, DONE, pause_s=0.01))
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


async def test_requests_ahead(pair):
    """Three at once: the engine was given each while those before it had no answer."""
    held = asyncio.Event()

    async def hold(request):
        await held.wait()
        await saying(said("a"), said("b"), USAGE % 2, DONE)(request)

    front = await pair(hold, weights={"r1": 100, "r2": 0})
    asked = [asyncio.create_task(front.ask(CHAT, stream=True)) for _ in range(3)]
    await asyncio.sleep(0.2)
    held.set()
    await asyncio.gather(*asked)
    arm = (await told(front))["default/chat"]["default/engine-0"]
    assert {i: m.n for i, m in enumerate(arm.ttft) if m.n} == {
        ttft_bin(300, 0): 1, ttft_bin(300, 1): 1, ttft_bin(300, 2): 1,
    }  # fmt: skip
    assert [m.n for m in arm.missed] == [1, 1, 1, 0, 0, 0]


async def in_two(request, begun, end):
    """A stream of two tokens: begun() after the first, the second when `end` is set."""
    await request.head()
    await request.chunk(said("a"))
    begun()
    await end.wait()
    for chunk in (said("b"), USAGE % 2, DONE):
        await request.chunk(chunk)
    await request.end()


async def test_requests_beside(pair):
    """The second comes and goes while the first is being answered: it stands behind nobody, but is not
    alone. The first begins and ends alone."""
    is_begun, held = asyncio.Event(), asyncio.Event()

    async def hold(request):
        if is_begun.is_set():
            await saying(said("a"), said("b"), USAGE % 2, DONE)(request)
            return
        await in_two(request, is_begun.set, held)

    front = await pair(hold, weights={"r1": 100, "r2": 0})
    first = asyncio.create_task(front.ask(CHAT, stream=True))
    await is_begun.wait()
    await asyncio.sleep(0.2)
    await front.ask(CHAT, stream=True)
    held.set()
    await first
    arm = (await told(front))["default/chat"]["default/engine-0"]
    assert {i: m.n for i, m in enumerate(arm.ttft) if m.n} == {ttft_bin(300, 0): 2}
    assert {i: m.n for i, m in enumerate(arm.tpot) if m.n} == {
        tpot_bin(300, 0): 1, tpot_bin(300, 1): 1,
    }  # fmt: skip


async def test_what_comes_while_an_answer_is_written_is_beside_it_too(pair):
    """It begins alone and ends beside two: one, in the mean."""
    begun, ends = asyncio.Semaphore(0), [asyncio.Event() for _ in range(3)]
    turns = iter(ends)

    async def hold(request):
        await in_two(request, begun.release, next(turns))

    front = await pair(hold, weights={"r1": 100, "r2": 0})
    asked = []
    for _ in ends:
        asked.append(asyncio.create_task(front.ask(CHAT, stream=True)))
        await begun.acquire()
    for end, task in zip(ends, asked, strict=True):
        end.set()
        await task
        await asyncio.sleep(0.1)  # the gateway sees the end a little later
    arm = (await told(front))["default/chat"]["default/engine-0"]
    # (0 + 2) / 2, (1 + 1) / 2, (2 + 0) / 2
    assert {i: m.n for i, m in enumerate(arm.tpot) if m.n} == {tpot_bin(300, 1): 3}


async def test_tenants_are_told_apart_where_the_service_names_a_header(pair):
    front = await pair(saying(said("a"), said("b"), USAGE % 2, DONE), weights={"r1": 100})
    (service,) = front.fleet.snapshot.services
    asked = {"authorization": "Bearer sk-1", "x-tenant": "acme"}
    for header, tenants in (("", {}), ("x-tenant", {"acme": 1})):
        front.show(replace(service, tenant_header=header))
        async with front.client.post(
            front.url + CHAT, json={"model": "chat", "stream": True}, headers=asked
        ) as got:
            await got.read()
        arm = (await told(front))["default/chat"]["default/engine-0"]
        assert {name: each.requests for name, each in arm.tenants.items()} == tenants
    assert arm.tenants["acme"].ttft.n == 1
    await front.ask(CHAT)  # names nobody
    assert len((await told(front))["default/chat"]["default/engine-0"].tenants) == 1


async def test_tenants_are_not_counted_before_there_is_anything_to_compare(
    start_engine, start_gateway, make_service
):
    """Or those of quiet times fill the table, which is bounded."""
    engines = [await start_engine(), await start_engine(revision="r2")]
    front = await start_gateway()
    for with_engines in (engines[:1], engines):
        service = make_service(*with_engines, weights={"r1": 100})
        front.show(replace(service, tenant_header="x-tenant"))
        name = {"x-tenant": f"of-{len(with_engines)}"}
        body = {"model": "chat", "stream": True}
        async with front.client.post(front.url + CHAT, json=body, headers=name) as got:
            await got.read()
        await front.idle()
    arm = (await told(front))["default/chat"]["default/engine-0"]
    assert (arm.requests, set(arm.tenants)) == (2, {"of-2"})


@pytest.mark.parametrize(
    ("behaviour", "stream", "empty"),
    [
        (saying(said(""), USAGE % 1, DONE), True, 1),
        (saying(said("a"), DONE), True, 0),
        (saying(b'data: {"choices":[{"text":""}]}\n\n', DONE), True, 1),
        (saying(b'data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}\n\n', DONE), True, 0),
        (lambda r: r.whole(b'{"choices":[{"message":{"content":""}}]}'), False, 1),
        (lambda r: r.whole(b'{"choices":[{"message":{"content":null}}]}'), False, 1),
        (lambda r: r.whole(b'{"choices":[{"message":{"content":"x"}}]}'), False, 0),
        (lambda r: r.whole(b'{"choices":[{"message":{"content":" \\n\\t"}}]}'), False, 1),
        (lambda r: r.whole(b'{"choices":[{"message":{"content":" \\n\\t{"}}]}'), False, 0),
        (lambda r: r.whole(b'{"choices":[{"message":{"content":"\\\\n"}}]}'), False, 0),
        (saying(said(" "), said("\n"), said("x"), DONE), True, 0),
        (saying(said(" "), said("\n"), DONE), True, 1),
    ],
)
async def test_answers_that_say_nothing(pair, behaviour, stream, empty):
    arm = await arm_after(await pair(behaviour), stream)
    assert (arm.requests, arm.empty_outputs, arm.errors) == (1, empty, 0)


@pytest.mark.parametrize(
    ("behaviour", "errors"),
    [
        (broken, 1),
        (failing, 1),
        (draining, 1),
        (refusing, 0),
        (failing_late(500), 1),
        (saying(said("a"), b'event: error\ndata: {"type": "error", "error": {}}\n\n', DONE), 1),
    ],
)
async def test_what_an_engine_breaks(pair, behaviour, errors):
    front = await pair(behaviour, max_attempts=1)
    arm = await arm_after(front)
    assert (arm.requests, arm.errors, arm.violations) == (errors, errors, errors)


async def test_an_engine_that_is_gone_and_nobody_else(start_engine, start_gateway, make_service):
    engines = [await start_engine(), await start_engine(revision="r2")]
    front = await start_gateway(wait_for_endpoint_s=0.01)
    front.show(make_service(*engines))
    await engines[0].stop()
    arm = await arm_after(front)
    assert (arm.requests, arm.errors) == (1, 1)


async def test_what_another_engine_saves_is_nobodys_error(pair):
    """The first one drains; the second one's time begins when the first one has refused."""

    async def slowly_refuse(request):
        await asyncio.sleep(0.5)
        await draining(request)

    front = await pair(slowly_refuse, weights={"r1": 100, "r2": 0})
    service = front.fleet.snapshot.services[0]
    asked = asyncio.create_task(front.ask(CHAT))
    await asyncio.sleep(0.1)
    front.show(
        type(service)(**{f: getattr(service, f) for f in FIELDS} | {"weights": {Side("r2"): 1}})
    )
    assert (await asked)[0] == 200
    arms = (await told(front))["default/chat"]
    assert "default/engine-0" not in arms
    (second,) = arms.values()
    assert (second.requests, second.errors) == (1, 0)
    (ttft,) = [m for m in second.ttft if m.n]
    assert math.exp(ttft.mean) < 0.4


FIELDS = ("namespace", "name", "served_name", "created_s", "endpoints", "objectives", "sides")


async def test_a_client_that_leaves_is_nobodys_error(pair, until):
    front = await pair(saying(*[said("a")] * 500, pause_s=0.01))
    async with front.post() as got:
        await got.content.readany()
        got.close()
    assert (await told(front))["default/chat"] == {}


async def test_a_gateway_that_stops_is_not_the_engines_error(pair, until):
    front = await pair(saying(*[said("a")] * 500, pause_s=0.01))
    async with front.post() as got:
        await got.content.readany()
        front.gateway.stop()
        assert b"the gateway is stopping" in await got.read()
    assert (await told(front))["default/chat"] == {}


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
async def test_objectives_that_are_missed(pair, ttft_s, tpot_s, stream, violations):
    async def slow(request):
        await asyncio.sleep(0.02)
        if request.is_stream:
            await saying(said("a"), said("b"), said("c"), DONE, pause_s=0.02)(request)
        else:
            await request.whole(b'{"choices":[{"text":"x"}],"usage":{"completion_tokens":3}}')

    arm = await arm_after(await pair(slow, Objectives(ttft_s, tpot_s)), stream)
    assert (arm.requests, arm.violations) == (1, violations)
    assert arm.missed[0] == Moments(1, violations, violations)


async def test_nothing_is_told_of_engines_that_are_alike(start_engine, start_gateway):
    front = await start_gateway(await start_engine())
    await front.ask(CHAT)
    assert await told(front) == {}


async def test_what_was_counted_before_there_were_two_sides_is_told_then(
    start_engine, start_gateway, make_service
):
    engines = [await start_engine(), await start_engine(revision="r2")]
    front = await start_gateway(engines[0])
    await front.ask(CHAT)
    front.show(make_service(*engines))
    assert (await told(front))["default/chat"]["default/engine-0"].requests == 1


async def test_an_engine_that_is_gone_is_forgotten(start_engine, start_gateway, make_service):
    engines = [await start_engine(), await start_engine(revision="r2")]
    front = await start_gateway()
    front.show(make_service(*engines, weights={"r1": 1, "r2": 0}))
    await front.ask(CHAT)
    assert set((await told(front))["default/chat"]) == {"default/engine-0"}
    front.show(make_service(engines[1], await start_engine(), weights={"r1": 1}))
    assert (await told(front))["default/chat"] == {}
