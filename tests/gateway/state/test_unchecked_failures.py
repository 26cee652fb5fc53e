"""Failures that no other engine could check: they do not count for outlier ejection."""

import pytest
from tests.gateway.engine_answers import resets, whole


@pytest.mark.parametrize(
    "status", ["501 Not Implemented", "504 Gateway Timeout", "505 HTTP Version Not Supported"]
)
async def test_failure_does_not_count_if_the_retry_is_answered_with_a_status_about_the_request(
    start_engine, start_gateway, status
):
    broken, other = await start_engine(resets), await start_engine(whole(b"{}", status))
    front = await start_gateway(broken, other)
    endpoints = front.gateway.state.endpoints
    while len(broken.requests) < 3:  # three in a row would eject it
        assert (await front.ask(stream=False))[0] == int(status[:3])
    assert not endpoints.ejected([broken.endpoint()], front.gateway.state.now())
    other.behavior = whole(b"{}")
    while len(broken.requests) < 6:
        assert (await front.ask(stream=False))[0] == 200
    assert endpoints.ejected([broken.endpoint()], front.gateway.state.now())


async def test_failure_does_not_count_if_no_engine_is_there_in_time_for_the_retry(
    start_engine, start_gateway, make_service
):
    engine = await start_engine()
    front = await start_gateway(wait_for_endpoint_s=0.01)
    service = make_service(engine)

    async def leaves(request):
        front.publish(make_service())
        request.reset()

    engine.behavior = leaves
    for _ in range(3):
        front.publish(service)
        assert (await front.ask(stream=False))[0] == 503
    assert len(engine.requests) == 3
    assert not front.gateway.state.endpoints.ejected([engine.endpoint()], front.gateway.state.now())


async def test_failures_of_a_gateway_without_retries_count(start_engine, start_gateway):
    engine = await start_engine(resets)
    front = await start_gateway(engine, max_attempts=1)
    for _ in range(3):
        assert (await front.ask(stream=False))[0] == 502
    assert len(engine.requests) == 3
    assert front.gateway.state.endpoints.ejected([engine.endpoint()], front.gateway.state.now())
