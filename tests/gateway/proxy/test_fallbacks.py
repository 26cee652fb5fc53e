"""Requests that go to a fallback of their ModelRoute, before anything of a response reached the client."""

import asyncio
import json

import pytest
from tests.gateway.engine_answers import EVENT, breaks, cuts, hangs, stream, whole
from tests.gateway.support.front import until
from tests.support.engine_models import model_of
from tests.support.gateway_callers import api_key, bearer, let_in, tenant
from tests.support.gateway_snapshots import build

from penstock.core.admission.engine_kind import EngineKind
from penstock.core.routing.apis import CHAT
from penstock.core.spec.objectives import Objectives
from penstock.core.tenants.tenant import Access
from penstock.gateway.snapshots.snapshot import Snapshot

MODEL, FALLBACK = "x-penstock-model", "x-penstock-fallback"
ANSWER = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
answers = whole(json.dumps(ANSWER).encode())


def route(*fallbacks, backend="main", **more):
    rule = {"name": "all", "backendRefs": [{"name": backend}], "fallbacks": list(fallbacks), **more}
    metadata = {
        "name": "front",
        "namespace": "default",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {"metadata": metadata, "spec": {"modelName": "chat", "rules": [rule]}}


def publish(front, route, *services):
    front.snapshots.publish(Snapshot(services, build([], [], [route]).routes))


@pytest.fixture
def start_pair(start_engine, start_gateway, make_service):
    """`await start_pair(behavior, …)` -> a gateway with a route to `main`, which falls back to `spare`, and
    both engines."""

    async def start(
        behavior, *fallbacks, spare=answers, objectives=None, rule=None, has_main=True, **settings
    ):
        first, second = await start_engine(behavior), await start_engine(spare)
        front = await start_gateway(**settings)
        main = make_service(
            *([first] if has_main else []), name="main", served_name="large", objectives=objectives
        )
        other = make_service(second, name="spare", served_name="small")
        wanted = route(*(fallbacks or [{"name": "spare"}]), **(rule or {}))
        publish(front, wanted, main, other)
        return front, first, second

    return start


async def send(front, headers=None, **fields):
    """Returns the status, the model that answered, why it was a fallback, and the body."""
    body = {"model": "chat", "stream": False, **fields}
    async with front.client.post(front.url + CHAT.path, json=body, headers=headers) as got:
        return got.status, got.headers.get(MODEL), got.headers.get(FALLBACK), await got.read()


async def fallbacks(front, reason):
    labels = {"model_route": "default/front", "target": "InferenceService/spare"}
    return await front.metric("penstock_gateway_fallbacks_total", **labels, reason=reason)


async def test_answer_of_the_first_backend_is_no_fallback(start_pair):
    front, _, spare = await start_pair(answers)
    assert (await send(front))[:3] == (200, "large", None)
    assert not spare.requests


async def resets(request):
    request.reset()


async def unavailable(request):
    await request.whole(b"{}", "503 Service Unavailable")


@pytest.mark.parametrize("behavior", [breaks, resets, unavailable])
@pytest.mark.parametrize("stream", [False, True])
async def test_engines_that_fail_are_an_error(start_pair, behavior, stream):
    front, _main, spare = await start_pair(behavior, max_attempts=1)
    status, model, reason, body = await send(front, stream=stream)
    assert (status, model, reason) == (200, "small", "error")
    assert json.loads(body) == ANSWER
    assert json.loads(spare.requests[0].body)["model"] == "small"
    await front.idle()
    assert await fallbacks(front, "error") == 1
    stats = front.gateway.state.stats
    assert (stats.get("default/main").failed, stats.get("default/main").ended) == (1, 0)
    assert (stats.get("default/spare").failed, stats.get("default/spare").ended) == (0, 1)
    assert await front.metric("penstock_gateway_responses_total", service="default/spare") == 1
    assert await front.metric("penstock_gateway_rejections_total") == 0


async def test_engine_that_cannot_be_reached_is_absent(start_pair):
    front, main, _ = await start_pair(answers, wait_for_endpoint_s=0.3)
    await main.stop()
    assert (await send(front))[:3] == (200, "small", "absence")


async def test_service_without_engines_is_absent(start_pair):
    front, *_ = await start_pair(answers, has_main=False, wait_for_endpoint_s=0.05)
    assert (await send(front))[:3] == (200, "small", "absence")


async def test_backend_that_does_not_exist_is_absent(start_pair):
    front, *_ = await start_pair(answers, rule={"backend": "missing"})
    assert (await send(front))[:3] == (200, "small", "absence")


async def test_wait_for_a_slot_that_is_over_is_overload(start_pair):
    objectives = Objectives.parse("60s", None, None)
    front, main, _ = await start_pair(hangs, objectives=objectives, wait_for_endpoint_s=0.2)
    ahead = asyncio.create_task(send(front, stream=True))
    await main.arrived.wait()
    assert (await send(front))[:3] == (200, "small", "overload")
    ahead.cancel()
    await front.idle()
    assert len(main.requests) == 1
    assert front.gateway.state.stats.get("default/main").shed == 1


async def test_stream_without_a_first_byte_in_time_is_late(start_pair):
    rule = {"timeouts": {"firstToken": "100ms"}}
    front, main, _spare = await start_pair(
        hangs, rule=rule, spare=stream(EVENT, b"data: [DONE]\n\n")
    )
    assert (await send(front, stream=True))[:3] == (200, "small", "late_first_token")
    async with asyncio.timeout(5):
        await main.left.wait()
    await front.idle()
    assert front.gateway.state.stats.get("default/main").failed == 1


async def test_late_streams_eject_an_engine_that_hangs(start_pair):
    rule = {"timeouts": {"firstToken": "50ms"}}
    front, main, _ = await start_pair(hangs, rule=rule)
    for _ in range(3):
        await send(front, stream=True)
    state = front.gateway.state
    assert state.endpoints.ejected([main.endpoint()], state.now())


async def test_late_streams_eject_no_engine_that_was_predicted_to_take_as_long(start_pair):
    """A tenant's long prompts, or a short limit of its route, eject no engine that others share."""
    rule = {"timeouts": {"firstToken": "50ms"}}
    front, main, _ = await start_pair(hangs, rule=rule)
    state, endpoint = front.gateway.state, main.endpoint()
    state.engines.load(endpoint.pod, EngineKind(model_of(0.1)))
    for _ in range(3):
        assert (await send(front, stream=True))[2] == "late_first_token"
    assert not state.endpoints.ejected([endpoint], state.now())


async def test_objective_is_the_limit_of_the_first_token(start_pair):
    front, *_ = await start_pair(hangs, objectives=Objectives.parse("100ms", None, None))
    assert (await send(front, stream=True))[:3] == (200, "small", "late_first_token")


async def test_stream_that_has_begun_stays(start_pair):
    """A stream whose first byte went out does not fall back when it pauses or breaks off."""

    async def slow(request):
        await request.head()
        await request.chunk(EVENT)
        await asyncio.sleep(0.3)
        request.reset()

    front, _, spare = await start_pair(slow, rule={"timeouts": {"firstToken": "100ms"}})
    status, model, reason, body = await send(front, stream=True)
    assert (status, model, reason) == (200, "large", None)
    assert body.startswith(EVENT)
    assert b"cut off" in body
    assert not spare.requests


async def test_cut_stream_stays(start_pair):
    front, _, spare = await start_pair(cuts)
    assert (await send(front, stream=True))[1:3] == ("large", None)
    assert not spare.requests


@pytest.mark.parametrize("status", ["400 Bad Request", "404 Not Found", "501 Not Implemented"])
async def test_answers_about_the_request_stay(start_pair, status):
    front, _, spare = await start_pair(whole(b"{}", status))
    assert (await send(front))[0] == int(status[:3])
    assert not spare.requests


async def test_reason_that_is_not_listed_stays(start_pair):
    front, _, spare = await start_pair(
        breaks, {"name": "spare", "reasons": ["Overload", "Absence"]}, max_attempts=1
    )
    assert (await send(front))[:3] == (500, "large", None)
    assert not spare.requests


async def test_each_target_is_tried_once(start_pair):
    front, main, spare = await start_pair(
        breaks, {"name": "main"}, {"name": "spare"}, spare=breaks, max_attempts=1
    )
    status, model, reason, _ = await send(front)
    assert (status, model, reason) == (500, "small", "error")
    assert (len(main.requests), len(spare.requests)) == (1, 1)


async def test_fallbacks_that_do_not_exist_are_passed_over(start_pair):
    missing = [{"name": "missing"}, {"kind": "LoraAdapter", "name": "missing"}]
    front, *_ = await start_pair(breaks, *missing, {"name": "spare"}, max_attempts=1)
    assert (await send(front))[:3] == (200, "small", "error")


@pytest.mark.parametrize(("names", "expected"), [({"chat"}, 500), ({"chat", "small"}, 200)])
async def test_tenant_needs_access_to_the_fallback_itself(start_pair, names, expected):
    front, _, spare = await start_pair(breaks, max_attempts=1)
    key = api_key(1)
    let_in(front.gateway, tenant("a", Access("default", frozenset(names))), keys={"a": key})
    assert (await send(front, bearer(key)))[0] == expected
    assert bool(spare.requests) == (expected == 200)


async def test_retry_budget_bounds_fallbacks_after_errors(start_pair):
    front, _main, spare = await start_pair(
        breaks, spare=hangs, max_attempts=1, min_retries=2, retry_budget_fraction=0.0
    )
    async with asyncio.TaskGroup() as group:
        held = [group.create_task(send(front)) for _ in range(2)]
        await until(lambda: len(spare.requests) == 2)
        assert [(await send(front))[0] for _ in range(3)] == [500] * 3
        for each in held:
            each.cancel()
    assert len(spare.requests) == 2
    await front.idle()


@pytest.mark.parametrize("first", [hangs, breaks])
async def test_client_that_leaves_ends_the_request_at_the_target_that_has_it(start_pair, first):
    front, main, spare = await start_pair(first, spare=hangs, max_attempts=1)
    asking = asyncio.create_task(send(front, stream=True))
    async with asyncio.timeout(5):
        await (main if first is hangs else spare).arrived.wait()
    asking.cancel()
    async with asyncio.timeout(5):
        await (main if first is hangs else spare).left.wait()
    await front.idle()
    assert len(spare.requests) == (first is breaks)


async def test_one_time_limit_holds_for_all_targets(start_pair):
    rule = {"timeouts": {"request": "300ms", "firstToken": "100ms"}}
    front, *_ = await start_pair(hangs, rule=rule, spare=hangs)
    status, model, *_ = await send(front, stream=True)
    assert (status, model) == (504, "small")


async def test_thousand_requests_for_a_dead_pool(start_pair):
    front, main, _ = await start_pair(answers, wait_for_endpoint_s=0.3)
    await main.stop()
    got = await asyncio.gather(*(send(front) for _ in range(1000)))
    assert {each[:3] for each in got} == {(200, "small", "absence")}
    await front.idle()
    assert not front.gateway.state.limits.connections.held
    assert not front.gateway.state.limits.body_bytes.held
