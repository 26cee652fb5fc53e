"""Engines that become unready before the first byte of a response: the request moves to another one."""

import asyncio
from dataclasses import replace

import pytest
from tests.gateway.engine_answers import CHUNKS, DONE, hangs
from tests.gateway.support.engine_stub import WHOLE

from penstock.core.routing.pick import Endpoint, Side
from penstock.gateway.snapshots.snapshot import Snapshot
from penstock.gateway.upstream.unanswered import EngineLost, UnansweredAttempts

ANSWER = b"".join(CHUNKS) + DONE


async def silent_after_the_head(request):
    await request.head()
    await asyncio.Event().wait()


async def comments_only(request):
    await request.head()
    while True:
        await request.chunk(b": ping\n\n")
        await asyncio.sleep(0.01)


@pytest.fixture
def published(make_service):
    """`published(front, engines, ready, terminating)`: a service, of whose engines some are ready."""

    def publish(front, engines, ready, terminating=()):
        service = make_service(*engines)
        endpoints = tuple(engine.endpoint() for engine in ready)
        pods = frozenset(engine.endpoint().pod for engine in terminating)
        front.publish(replace(service, endpoints=endpoints, terminating=pods))

    return publish


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("fault", [hangs, silent_after_the_head, comments_only])
async def test_request_without_a_byte_moves_to_a_ready_engine(
    until, start_engine, start_gateway, published, fault, stream
):
    frozen, good = await start_engine(fault), await start_engine()
    front = await start_gateway(min_retries=1, retry_budget_fraction=0.0)
    published(front, [frozen], [frozen])
    asking = [asyncio.create_task(front.ask(stream=stream)) for _ in range(5)]
    await until(lambda: frozen.active == 5)

    with front.gateway.state.retry_budget.hold("default/chat"):  # no further retry is allowed
        published(front, [frozen, good], [good])
        assert await asyncio.gather(*asking) == [(200, ANSWER if stream else WHOLE)] * 5

    await front.idle()
    assert not front.gateway.state.endpoints.suspects
    stats = front.gateway.state.stats.get("default/chat")
    assert {pod: arm.errors for pod, arm in stats.arms().items()} == {good.endpoint().pod: 0}
    assert await front.metric("penstock_gateway_retries_total", reason="unready") == 5


async def test_engine_that_is_deleted_completes_its_requests(
    start_engine, start_gateway, published
):
    go = asyncio.Event()

    async def answer_later(request):
        await go.wait()
        await request.whole(b'"by the first engine"')

    old, new = await start_engine(answer_later), await start_engine()
    front = await start_gateway()
    published(front, [old], [old])
    asking = asyncio.create_task(front.ask(stream=False))
    await old.arrived.wait()
    published(front, [old, new], [new], terminating=[old])
    await asyncio.sleep(0)
    go.set()
    assert await asking == (200, b'"by the first engine"')
    assert not new.requests


async def test_request_stays_while_no_other_engine_is_ready(start_engine, start_gateway, published):
    """The engine may recover. When another one becomes ready, it takes the request."""
    frozen, later = await start_engine(hangs), await start_engine()
    front = await start_gateway()
    published(front, [frozen], [frozen])
    asking = asyncio.create_task(front.ask())
    await frozen.arrived.wait()
    published(front, [frozen, later], [])
    assert (await front.client.get(front.url + "/v1/models")).status == 200
    assert frozen.active == 1
    published(front, [frozen, later], [later])
    assert await asking == (200, ANSWER)


async def test_stream_that_has_begun_stays_at_its_unready_engine(
    start_engine, start_gateway, published
):
    go = asyncio.Event()

    async def pause_after_the_first_event(request):
        await request.head()
        await request.chunk(CHUNKS[0])
        await go.wait()
        await request.chunk(DONE)
        await request.end()

    slow, other = await start_engine(pause_after_the_first_event), await start_engine()
    front = await start_gateway()
    published(front, [slow], [slow])
    async with front.post() as got:
        assert await got.content.readany() == CHUNKS[0]
        published(front, [slow, other], [other])
        go.set()
        assert await got.read() == DONE
    assert not other.requests


async def test_two_snapshots_can_give_up_an_attempt_in_the_same_moment(make_service):
    attempts, service = UnansweredAttempts(), make_service()
    endpoint = Endpoint("default/new", "127.0.0.1:1", "r1")
    unready = replace(service, endpoints=(endpoint,), sides={"default/old": Side("r1")})

    async def wait():
        async with attempts.watch(service.key, "default/old"):
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    attempts.update(Snapshot((unready,)))
    await asyncio.sleep(0)  # the attempt is cancelled, and its task has not run yet
    attempts.update(Snapshot((unready,)))
    with pytest.raises(EngineLost):
        await waiting
