"""Requests without an engine: they wait within limits until the snapshot changes."""

import asyncio
import json
import math
from dataclasses import replace

import pytest

from penstock.core.routing.pick import Endpoint


@pytest.mark.parametrize("stream", [True, False])
async def test_request_waits_for_the_first_engine(
    until, start_engine, start_gateway, make_service, stream
):
    front = await start_gateway()
    front.publish(make_service())
    asking = [asyncio.create_task(front.ask(stream=stream)) for _ in range(5)]
    await until(lambda: front.gateway.state.waiting == 5)
    assert await front.metric("penstock_gateway_requests_waiting", service="default/chat") == 5

    front.publish(make_service(await start_engine()))

    assert [status for status, _ in await asyncio.gather(*asking)] == [200] * 5
    assert front.gateway.state.waiting == 0
    assert await front.metric("penstock_gateway_wait_seconds_count") == 5


async def test_request_waits_for_the_first_snapshot(start_engine, start_gateway, make_service):
    front = await start_gateway(synced=False)
    async with front.client.get(front.management_url + "/readyz") as got:
        assert got.status == 503
    async with front.client.get(front.management_url + "/healthz") as got:
        assert got.status == 200
    asking = asyncio.create_task(front.ask())
    await asyncio.sleep(0.05)

    front.publish(make_service(await start_engine()))

    assert (await asking)[0] == 200
    async with front.client.get(front.management_url + "/readyz") as got:
        assert got.status == 200


async def test_failed_connections_count_as_waiting(start_gateway, make_service, stuck_address):
    front = await start_gateway(connect_timeout_s=0.2, wait_for_endpoint_s=0.5)
    nodes = tuple(Endpoint(f"default/lost-{n}", stuck_address, "r1") for n in range(30))
    front.publish(replace(make_service(), endpoints=nodes))

    status, _ = await front.ask()

    assert status == 503
    assert await front.metric("penstock_gateway_retries_total", reason="connect") <= 4


async def test_wait_is_limited(start_gateway, make_service):
    front = await start_gateway(wait_for_endpoint_s=0.1)
    front.publish(make_service())

    async with front.post() as got:
        error = (await got.json())["error"]

    assert (got.status, got.headers["retry-after"]) == (503, "5")
    assert (error["type"], error["message"]) == ("overloaded_error", "no engine is ready")


async def test_a_request_to_a_stalled_service_without_traffic_does_not_wait(
    start_gateway, make_service
):
    front = await start_gateway(wait_for_endpoint_s=60)
    service = replace(make_service(), weights={}, stalled="ModelNotFound")
    front.publish(service)

    async with front.post() as got:
        error = (await got.json())["error"]

    assert (got.status, error["code"], error["type"]) == (503, "stalled", "unavailable_error")
    assert error["message"] == (
        f"the InferenceService {service.key} cannot answer (ModelNotFound): its condition Stalled says what "
        "to change"
    )


@pytest.mark.parametrize("is_waiting", [False, True])
async def test_a_request_to_a_service_with_0_replicas_does_not_wait(
    until, start_gateway, make_service, is_waiting
):
    """No engine will start. A request that waits already is answered when the status has 0 replicas."""
    front = await start_gateway(wait_for_endpoint_s=60)
    service = make_service()
    front.publish(replace(service, is_scaled_to_zero=not is_waiting))
    asking = asyncio.create_task(front.ask())
    if is_waiting:
        await until(lambda: front.gateway.state.waiting == 1)
        front.publish(replace(service, is_scaled_to_zero=True))

    status, body = await asking

    error = json.loads(body)["error"]
    assert (status, error["code"], error["type"]) == (503, "scaled_to_zero", "unavailable_error")
    assert error["message"] == (
        f"the InferenceService {service.key} has 0 replicas (spec.replicas), and no request starts an engine"
    )


async def test_an_engine_of_a_service_that_is_scaled_to_zero_still_answers(
    start_engine, start_gateway, make_service
):
    front = await start_gateway()
    front.publish(replace(make_service(await start_engine()), is_scaled_to_zero=True))
    assert (await front.ask())[0] == 200


async def test_number_of_waiting_requests_is_bounded(
    until, start_engine, start_gateway, make_service
):
    front = await start_gateway(max_waiting=3)
    front.publish(make_service())
    asking = [asyncio.create_task(front.ask()) for _ in range(3)]
    await until(lambda: front.gateway.state.waiting == 3)

    status, body = await front.ask()

    assert status == 503
    assert json.loads(body)["error"]["message"] == "too many requests wait for an engine"
    front.publish(make_service(await start_engine()))
    assert [status for status, _ in await asyncio.gather(*asking)] == [200] * 3


async def test_deleted_model_ends_the_wait(until, start_gateway, make_service):
    front = await start_gateway()
    front.publish(make_service())
    asking = asyncio.create_task(front.ask())
    await until(lambda: front.gateway.state.waiting == 1)

    front.publish()

    assert (await asking)[0] == 404


async def test_removed_engine_gets_no_requests(start_engine, start_gateway, make_service):
    going, staying = await start_engine(), await start_engine()
    front = await start_gateway(going, staying)
    for _ in range(10):
        await front.ask()

    front.publish(make_service(staying))

    before = len(going.requests)
    for _ in range(20):
        await front.ask()
    assert len(going.requests) == before


async def test_retries_are_limited_by_the_budget(until, start_engine, start_gateway, make_service):
    """Thirty requests lose their engine at once; two retries at a time are allowed."""
    hold = asyncio.Event()
    peak = 0

    async def fails(request):
        await hold.wait()
        request.reset()

    async def counts(request):
        nonlocal peak
        peak = max(peak, good.active)
        await asyncio.sleep(0.01)
        await request.whole(b"{}")

    bad, good = await start_engine(fails), await start_engine(counts)
    front = await start_gateway(bad, min_retries=2, retry_budget_fraction=0.0)
    asking = [asyncio.create_task(front.ask(stream=False)) for _ in range(30)]
    await until(lambda: bad.active == 30)
    front.publish(make_service(good))

    hold.set()

    assert [status for status, _ in await asyncio.gather(*asking)] == [200] * 30
    assert peak == 2
    await front.idle()


async def test_idle_engine_is_selected(until, start_engine, start_gateway):
    hold = asyncio.Event()

    async def slow(request):
        await hold.wait()
        await request.whole(b"{}")

    engines = [await start_engine(slow) for _ in range(4)]
    front = await start_gateway(*engines)

    asking = [asyncio.create_task(front.ask(stream=False)) for _ in range(20)]
    await until(lambda: sum(engine.active for engine in engines) == 20)

    assert [engine.active for engine in engines] == [5, 5, 5, 5]
    hold.set()
    await asyncio.gather(*asking)


async def test_load_counts_prompt_tokens(until, start_engine, start_gateway):
    hold = asyncio.Event()

    async def slow(request):
        await hold.wait()
        await request.whole(b"{}")

    engines = [await start_engine(slow) for _ in range(2)]
    front = await start_gateway(*engines)
    asking = [asyncio.create_task(front.ask(stream=False, prompt="x" * 20_000))]
    await until(lambda: any(engine.active for engine in engines))

    for number in range(2, 12):
        asking.append(asyncio.create_task(front.ask(stream=False)))
        await until(lambda number=number: sum(engine.active for engine in engines) == number)

    assert sorted(engine.active for engine in engines) == [1, 10]
    hold.set()
    await asyncio.gather(*asking)


@pytest.mark.slow
async def test_traffic_follows_the_weights(start_engine, start_gateway, make_service):
    """2,000 draws at 80:20; the count is within 4 standard deviations."""
    stable, canary, off = [await start_engine(revision=r) for r in ("r1", "r2", "r3")]
    front = await start_gateway()
    front.publish(make_service(stable, canary, off, weights={"r1": 80, "r2": 20, "r3": 0}))

    for _ in range(20):
        await asyncio.gather(*(front.ask(stream=False) for _ in range(100)))

    spread = 4 * math.sqrt(2000 * 0.8 * 0.2)
    assert abs(len(canary.requests) - 400) < spread
    assert len(stable.requests) + len(canary.requests) == 2000
    assert off.requests == []


async def test_each_service_has_its_own_waiting_limit(
    until, start_engine, start_gateway, make_service
):
    front = await start_gateway(max_waiting=2)
    front.publish(make_service(), make_service(name="other"))
    waiting = [asyncio.create_task(front.ask()) for _ in range(2)]
    await until(lambda: front.gateway.state.waiting == 2)

    other = asyncio.create_task(front.ask(model="other"))
    await until(lambda: front.gateway.state.waiting == 3)
    assert (await front.ask())[0] == 503

    engine = await start_engine()
    front.publish(make_service(engine), make_service(engine, name="other"))
    assert [status for status, _ in await asyncio.gather(*waiting, other)] == [200] * 3


async def test_each_service_has_its_own_retry_budget(
    until, start_engine, start_gateway, make_service
):
    """A retry of one service does not use the other's budget."""
    hold = asyncio.Event()

    async def resets(request):
        request.reset()

    async def holds(request):
        await hold.wait()
        await request.whole(b"{}")

    bad, slow, good = await start_engine(resets), await start_engine(holds), await start_engine()
    front = await start_gateway(min_retries=1, retry_budget_fraction=0.0)
    front.publish(make_service(bad), make_service(bad, name="other"))
    first = asyncio.create_task(front.ask(stream=False))
    await until(lambda: len(bad.requests) == 1)
    front.publish(make_service(slow), make_service(bad, name="other"))
    await until(lambda: slow.active == 1)

    second = asyncio.create_task(front.ask(stream=False, model="other"))
    await until(lambda: len(bad.requests) == 2)
    front.publish(make_service(slow), make_service(good, name="other"))
    assert (await second)[0] == 200

    assert slow.active == 1
    hold.set()
    assert (await first)[0] == 200


async def test_changes_of_other_services_do_not_delay_a_retry(
    start_engine, start_gateway, make_service
):
    async def fails_once(request):
        if len(engine.requests) == 1:
            request.reset()
        else:
            await request.whole(b"{}")

    engine = await start_engine(fails_once)
    front = await start_gateway()
    asking, number = asyncio.create_task(front.ask(stream=False)), 0
    async with asyncio.timeout(5):  # half of what it may wait
        while not asking.done():
            number += 1
            front.publish(make_service(engine), make_service(name="other", created_s=number))
            await asyncio.sleep(0.02)
    assert (await asking)[0] == 200
