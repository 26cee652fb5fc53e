"""Outlier ejection: failing engines are ejected, but not for a request that breaks every engine."""

import asyncio
import json

import pytest

from penstock.clients.pods.stats_report import PATH, parse

CHUNK = b'data: {"n": 0}\n\n'


async def error(request):
    await request.whole(b'{"error": {"message": "mine"}}', "500 Internal Server Error")


async def unavailable(request):
    await request.whole(b"{}", "503 Service Unavailable")


async def reset(request):
    request.reset()


async def error_event(request):
    await request.head()
    await request.chunk(b'data: {"error": {"message": "mine"}}\n\n')
    await request.end()


async def silent(request):
    await asyncio.Event().wait()


def breaks_on_poison(behavior):
    async def behave(request):
        if json.loads(request.body).get("prompt") == "poison":
            await behavior(request)
        else:
            await request.whole(b"{}")

    return behave


@pytest.mark.parametrize("fault", [error, unavailable, reset, error_event])
async def test_request_that_breaks_every_engine_ejects_none(start_engine, start_gateway, fault):
    engines = [await start_engine(breaks_on_poison(fault)) for _ in range(3)]
    front = await start_gateway(*engines, max_attempts=3, min_retries=100)
    loads, endpoints = front.gateway.state.endpoints, [engine.endpoint() for engine in engines]
    for _ in range(10):
        status, body = await front.ask(prompt="poison")
        assert status >= 500 or b'"error"' in body
        assert not loads.ejected(endpoints, front.gateway.state.now())
    assert (await front.ask(stream=False))[0] == 200


@pytest.mark.parametrize("fault", [error, unavailable, reset, error_event])
async def test_request_that_the_retry_budget_allows_no_retry_of_ejects_none(
    start_engine, start_gateway, fault
):
    """The client that used up the budget could eject every engine with such requests."""
    engines = [await start_engine(breaks_on_poison(fault)) for _ in range(2)]
    front = await start_gateway(
        *engines, min_retries=1, retry_budget_fraction=0.0, wait_for_endpoint_s=0.01
    )
    with front.gateway.state.retry_budget.hold("default/chat"):
        for _ in range(6):
            status, body = await front.ask(prompt="poison")
            assert status >= 500 or b'"error"' in body
    assert not front.gateway.state.endpoints.suspects


async def test_failing_engine_is_ejected_without_retries(start_engine, start_gateway):
    front = await start_gateway(
        await start_engine(reset), await start_engine(), wait_for_endpoint_s=0.01, max_attempts=1
    )
    statuses = [(await front.ask(stream=False))[0] for _ in range(40)]
    assert 3 <= 40 - statuses.count(200) <= 6


async def test_client_that_leaves_before_the_retry_is_answered_ejects_none(
    start_engine, start_gateway, until
):
    async def resets_or_hangs(request):
        """Reset the first attempt, and never answer the second."""
        if sum(len(engine.requests) for engine in engines) % 2:
            request.reset()
        await silent(request)

    engines = [await start_engine(resets_or_hangs) for _ in range(2)]
    front = await start_gateway(*engines)
    endpoints = front.gateway.state.endpoints
    for number in range(1, 7):
        asking = asyncio.create_task(front.ask())
        await until(lambda n=number: sum(len(engine.requests) for engine in engines) == 2 * n)
        asking.cancel()
        await front.idle()
    assert not endpoints.ejected([e.endpoint() for e in engines], front.gateway.state.now())


@pytest.mark.parametrize(
    ("fault", "attempts"), [(error, 2), (error_event, 2), (reset, 2), (unavailable, 4)]
)
async def test_request_that_breaks_engines_reaches_at_most_two(
    start_engine, start_gateway, fault, attempts
):
    engines = [await start_engine(fault) for _ in range(6)]
    front = await start_gateway(*engines, max_attempts=4)
    await front.ask()
    assert [len(engine.requests) for engine in engines].count(1) == attempts


async def test_two_failing_engines_of_five_are_ejected(start_engine, start_gateway):
    """A retry goes to an engine without failures.

    Otherwise the two, idle as they are, would retry each other's requests, and a request that both
    fail is no evidence against either.
    """

    async def slow(request):
        await asyncio.sleep(0.03)
        await request.whole(b"{}")

    good = [await start_engine(slow) for _ in range(3)]
    bad = [await start_engine(error) for _ in range(2)]
    front = await start_gateway(*good, *bad)

    async def client():
        return [(await front.ask(stream=False))[0] for _ in range(20)]

    answers = await asyncio.gather(*(client() for _ in range(6)))
    assert sum(each.count(500) for each in answers) <= 6
    assert sum(len(engine.requests) for engine in bad) <= 40


async def test_all_engines_failing_are_still_used(start_engine, start_gateway):
    engines = [await start_engine(error) for _ in range(4)]
    front = await start_gateway(*engines)
    for _ in range(20):
        assert await front.ask() == (500, b'{"error": {"message": "mine"}}')
    assert all(engine.requests for engine in engines)


async def test_error_of_a_single_engine_is_not_retried(start_engine, start_gateway):
    engine = await start_engine(error)
    front = await start_gateway(engine)
    assert (await front.ask())[0] == 500
    assert len(engine.requests) == 1


async def test_engines_that_time_out_are_ejected(start_engine, start_gateway):
    engines = [await start_engine(silent), await start_engine()]
    front = await start_gateway(*engines, first_byte_timeout_s=0.05)
    answers = [(await front.ask())[0] for _ in range(60)]
    assert 3 <= answers.count(504) <= 6


async def refused(request):
    await request.whole(b"{}", "400 Bad Request")


async def refused_large(request):
    await request.whole(b"x" * 5000, "400 Bad Request")


async def refused_in_a_stream(request):
    await request.head()
    await request.chunk(b'data: {"error": {"message": "bad", "code": 400}}\n\n')
    await request.chunk(b"data: [DONE]\n\n")
    await request.end()


@pytest.mark.parametrize("refuse", [refused, refused_large, refused_in_a_stream])
async def test_status_400_clears_no_failures(start_engine, start_gateway, refuse):
    """An engine that fails good requests is ejected, however many bad ones it answers with 400."""

    async def behave(request):
        is_bad = json.loads(request.body).get("user") == "bad"
        await (refuse if is_bad else error)(request)

    engine = await start_engine(behave)
    front = await start_gateway(engine, max_buffered_answer_bytes=1000)
    loads = front.gateway.state.endpoints
    for _ in range(3):
        for user in ("bad", "good", "bad"):
            await front.ask(user=user)
        await front.idle()
    assert loads.ejected([engine.endpoint()], front.gateway.state.now())


async def test_only_a_response_without_an_error_clears_failures(start_engine, start_gateway):
    """A successful connection does not clear failures."""
    front = await start_gateway(await start_engine(error), await start_engine())
    for _ in range(40):
        assert (await front.ask())[0] == 200
    assert front.gateway.state.endpoints.suspects == {"default/engine-0"}


@pytest.mark.parametrize("fault", [error, unavailable, reset, error_event])
async def test_retried_errors_count_for_their_side_of_a_canary(
    start_engine, start_gateway, make_service, fault
):
    stable, canary = await start_engine(), await start_engine(fault, "r2")
    front = await start_gateway()
    front.publish(make_service(stable, canary, weights={"r1": 50, "r2": 50}))
    for _ in range(40):
        assert (await front.ask())[0] == 200
    await front.idle()
    async with front.client.get(front.management_url + PATH) as got:
        feed = parse("g", await got.text())
    arms = feed.arms["default/chat"]
    bad, good = arms["default/engine-1"], arms["default/engine-0"]
    assert bad.requests == bad.errors == len(canary.requests) >= 3
    assert (good.requests, good.errors) == (40, 0)
    assert feed.services["default/chat"].failed == 0


async def test_retried_connection_failure_is_no_error(start_engine, start_gateway, make_service):
    """Containers restart and nodes are lost with any revision."""
    stable, canary = await start_engine(), await start_engine(revision="r2")
    await canary.stop()
    front = await start_gateway()
    front.publish(make_service(stable, canary, weights={"r1": 50, "r2": 50}))
    for _ in range(20):
        assert (await front.ask())[0] == 200
    await front.idle()
    async with front.client.get(front.management_url + PATH) as got:
        arms = parse("g", await got.text()).arms["default/chat"]
    assert list(arms) == ["default/engine-0"]
    assert await front.metric("penstock_gateway_retries_total", reason="connect") >= 3


async def answer(request):
    await request.head()
    await request.chunk(CHUNK)
    await request.chunk(b"data: [DONE]\n\n")
    await request.end()


async def breaks_off(request):
    await request.head()
    await request.chunk(CHUNK)
    await asyncio.sleep(0.005)
    request.reset()


async def stands_still(request):
    await request.head()
    await request.chunk(CHUNK)
    await asyncio.Event().wait()


async def fails_late(request):
    await request.head()
    await request.chunk(CHUNK)
    await asyncio.sleep(0.005)
    await request.chunk(b'data: {"error": {"code": 500}}\n\n')
    await request.chunk(b"data: [DONE]\n\n")
    await request.end()


@pytest.mark.parametrize("fault", [breaks_off, stands_still, fails_late])
async def test_engines_with_truncated_streams_are_ejected(start_engine, start_gateway, fault):
    """A later first byte does not clear a truncated stream."""
    bad = await start_engine(fault)
    front = await start_gateway(await start_engine(), bad, between_chunks_timeout_s=0.1)
    broken = [b'"error"' in (await front.ask())[1] for _ in range(60)]
    assert 3 <= broken.count(True) == len(bad.requests) <= 6


async def test_complete_stream_clears_truncated_ones(start_engine, start_gateway, until):
    engine = await start_engine(breaks_off)
    front = await start_gateway(engine)
    loads = front.gateway.state.endpoints
    for _ in range(3):
        await front.ask()
    assert loads.ejected([engine.endpoint()], front.gateway.state.now())
    engine.behavior = answer
    assert b'"error"' not in (await front.ask())[1]
    await until(lambda: not loads.suspects)


async def test_total_timeout_is_no_failure_of_the_engine(start_engine, start_gateway):
    async def endless(request):
        await request.head()
        while True:
            await request.chunk(CHUNK)
            await asyncio.sleep(0.01)

    front = await start_gateway(await start_engine(endless), total_timeout_s=0.1)
    assert b'"code": 504' in (await front.ask())[1]
    assert not front.gateway.state.endpoints.suspects


async def test_total_timeout_of_a_whole_answer_is_no_failure_of_the_engine(
    start_engine, start_gateway, make_service
):
    """Its client may have asked for a very long one."""
    engines = [await start_engine(silent), await start_engine(revision="r2")]
    front = await start_gateway(total_timeout_s=0.1)
    front.publish(make_service(*engines))
    assert (await front.ask(stream=False))[0] == 504
    await front.idle()
    assert not front.gateway.state.endpoints.suspects
    stats = front.gateway.state.stats.get("default/chat")
    assert (stats.failed, stats.arms()) == (1, {})


@pytest.mark.parametrize("status", ["101 Switching Protocols", "600 Odd", "999 Denied"])
async def test_response_without_a_final_status_is_a_failure(start_engine, start_gateway, status):
    """Statuses that cannot be passed on count as failures of the engine."""

    async def odd(request):
        await request.whole(b"{}", status)

    front = await start_gateway(await start_engine(odd), max_attempts=1)
    assert (await front.ask(stream=False))[0] == 502
