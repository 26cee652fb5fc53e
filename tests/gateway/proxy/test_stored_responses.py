"""Stored responses are found on the engine that has them, by each gateway, and by no other way."""

import asyncio
import json
from dataclasses import replace

import pytest
from tests.gateway.engine_answers import hangs, resets, stream, whole

from penstock.core.routing.apis import STORED_RESPONSE_ROUTES
from penstock.core.routing.pick import Side
from penstock.core.routing.route import Mirror, RouteRule
from penstock.core.spec.objectives import Objectives
from penstock.gateway.apis.response_id import key_of, pod_key
from penstock.gateway.snapshots.snapshot import Route, Snapshot

PATH = "/v1/responses"
NUM_ENGINES = 3


class StoringEngine:
    """An engine that names responses by `request_id`, as vLLM does, and stores them."""

    def __init__(self):
        self.stored = {}

    async def __call__(self, request):
        if request.path == PATH:
            body = json.loads(request.body)
            response_id = body.get("request_id", "resp_of_the_engine")
            self.stored[response_id] = body
            await request.whole(json.dumps({"id": response_id}).encode())
            return
        response_id = request.path.removeprefix(PATH + "/").partition("/")[0].partition("?")[0]
        if response_id in self.stored:
            await request.whole(json.dumps({"id": response_id}).encode())
        else:
            await request.whole(b'{"error": "mine"}', status="404 Not Found")


async def about(front, path, method="GET", **options):
    """Status and body of a request about a stored response."""
    async with front.client.request(method, f"{front.url}{PATH}/{path}", **options) as got:
        return got.status, json.loads(await got.read())


async def create(front, **fields):
    status, body = await front.ask(PATH, stream=False, **fields)
    assert status == 200, body
    return json.loads(body)["id"]


@pytest.fixture
async def engines(start_engine):
    return [await start_engine(StoringEngine()) for _ in range(NUM_ENGINES)]


async def test_a_response_is_found_through_every_gateway(engines, start_gateway):
    first = await start_gateway(*engines)
    ids = [await create(first) for _ in range(12)]
    while not all(engine.behavior.stored for engine in engines):  # engines are drawn
        ids.append(await create(first))
    assert len(set(ids)) == len(ids)
    second = await start_gateway(*reversed(engines))  # as one that has just started
    for response_id in ids:
        (owner,) = (engine for engine in engines if response_id in engine.behavior.stored)
        assert key_of(response_id) == pod_key(f"default/{owner.name}", "")
        counts = [len(engine.requests) for engine in engines]
        assert await about(second, response_id) == (200, {"id": response_id})
        for _ in range(3):
            continued = await create(second, previous_response_id=response_id)
            assert owner.behavior.stored[continued]["previous_response_id"] == response_id
        counts[engines.index(owner)] += 4
        assert [len(engine.requests) for engine in engines] == counts
    await second.idle()


@pytest.mark.parametrize("route", STORED_RESPONSE_ROUTES)
async def test_routes_about_a_response_reach_its_engine(engines, start_gateway, route):
    front = await start_gateway(*engines)
    response_id = await create(front)
    stats = front.gateway.state.stats.get("default/chat")
    for method in STORED_RESPONSE_ROUTES[route]:
        path = route.format(response_id=response_id)
        url = front.url + path + "?include=a"
        async with front.client.request(method, url) as got:
            assert (got.status, got.headers["x-penstock-service"]) == (200, "default/chat")
            assert got.headers["x-penstock-revision"] == "r1"
        (asked,) = (
            request for engine in engines for request in engine.requests if request.path != PATH
        )
        assert (asked.method, asked.path, asked.body) == (method, path + "?include=a", b"")
        for engine in engines:
            engine.requests.clear()
    num_asked = len(STORED_RESPONSE_ROUTES[route])
    assert await front.metric("penstock_gateway_responses_total", route=route) == num_asked
    assert stats.arrivals == 1  # nothing is computed: no statistics count it
    await front.idle()


async def test_response_of_an_engine_that_is_gone_is_a_404(engines, start_gateway, make_service):
    front = await start_gateway(engines[0])
    response_id = await create(front)
    front.publish(make_service(*engines[1:]))
    message = (
        f"the response `{response_id}` does not exist: its id is wrong, or it was lost with the engine "
        "that stored it"
    )
    error = {"message": message, "type": "not_found_error", "code": "response_not_found"}
    assert await about(front, response_id) == (404, {"error": error | {"param": "response_id"}})
    status, body = await front.ask(PATH, previous_response_id=response_id)
    assert status == 404
    assert json.loads(body) == {"error": error | {"param": "previous_response_id"}}
    assert not any(engine.requests for engine in engines[1:])
    await front.idle()


async def test_response_of_an_engine_that_is_not_ready_is_a_503(
    engines, start_gateway, make_service
):
    front = await start_gateway(engines[0])
    response_id = await create(front)
    unready = {f"default/{engines[0].name}": Side("r1")}
    service = make_service(*engines[1:])
    front.publish(replace(service, sides={**service.sides, **unready}))
    message = f"the engine that has the response `{response_id}` is not ready"
    async with front.client.get(f"{front.url}{PATH}/{response_id}") as got:
        assert (got.status, got.headers["retry-after"]) == (503, "5")
        assert (await got.json())["error"]["message"] == message
    status, body = await front.ask(PATH, previous_response_id=response_id)
    assert (status, json.loads(body)["error"]["message"]) == (503, message)
    assert not any(engine.requests for engine in engines[1:])


@pytest.mark.parametrize(
    "response_id", ["resp_1", "x" * 400, "resp_" + "0" * 64, "resp_%2e%2e", "resp_1%0a", "%20"]
)
async def test_ids_that_no_gateway_has_made_are_a_404(engines, start_gateway, response_id):
    front = await start_gateway(*engines)
    status, body = await about(front, response_id)
    assert (status, body["error"]["type"]) == (404, "not_found_error")
    status, _ = await front.ask(PATH, previous_response_id=response_id)
    assert status == 404
    assert not any(engine.requests for engine in engines)


async def test_engines_own_answer_is_passed_on(engines, start_gateway):
    """The engine has dropped the response, or was restarted."""
    front = await start_gateway(*engines)
    response_id = await create(front)
    for engine in engines:
        engine.behavior.stored.clear()
    assert await about(front, response_id) == (404, {"error": "mine"})


@pytest.mark.parametrize(
    ("behavior", "status"),
    [(whole(b'{"a": 1}', "500 Oh"), 500), (whole(b"{}", "503 No"), 503), (resets, 502)],
)
async def test_no_other_engine_is_asked_when_the_one_with_the_response_fails(
    engines, start_gateway, behavior, status
):
    front = await start_gateway(*engines)
    response_id = await create(front)
    for engine in engines:
        engine.behavior = behavior
        engine.requests.clear()
    got, body = await about(front, response_id)
    assert (got, body == {"a": 1}) == (status, status == 500)
    status, body = await front.ask(PATH, stream=False, previous_response_id=response_id)
    assert status == (500 if body == b'{"a": 1}' else 503)
    (asked,) = (engine for engine in engines if engine.requests)
    assert key_of(response_id) == pod_key(f"default/{asked.name}", "")
    assert [request.path for request in asked.requests].count(PATH) == 1
    await front.idle()


async def test_engine_that_cannot_be_reached_is_a_503(engines, start_gateway):
    front = await start_gateway(*engines)
    response_id = await create(front)
    for engine in engines:
        await engine.stop()
    status, body = await about(front, response_id)
    message = "the engine that has the response did not answer"
    assert (status, body["error"]["message"]) == (503, message)
    assert (await front.ask(PATH, previous_response_id=response_id))[0] == 503
    await front.idle()


async def test_disconnect_while_the_engine_is_silent(engines, start_gateway):
    front = await start_gateway(*engines)
    response_id = await create(front)
    for engine in engines:
        engine.behavior = hangs
    (owner,) = (e for e in engines if key_of(response_id) == pod_key(f"default/{e.name}", ""))
    owner.arrived.clear()
    owner.left.clear()
    asking = asyncio.create_task(about(front, response_id))
    await owner.arrived.wait()
    await asyncio.sleep(0.02)
    asking.cancel()
    async with asyncio.timeout(5):
        await owner.left.wait()
    await front.idle()
    assert await front.metric("penstock_gateway_disconnects_total", phase="first_byte") == 1


LAST = b'event: response.completed\ndata: {"n": 1}\n\n'


@pytest.mark.parametrize("is_whole", [True, False])
async def test_events_of_a_stored_response(engines, start_gateway, is_whole):
    """vLLM repeats the events of a stored response for `?stream=true`."""
    front = await start_gateway(*engines)
    response_id = await create(front)
    event = b'event: response.created\ndata: {"n": 0}\n\n'
    for engine in engines:
        engine.behavior = stream(event, LAST) if is_whole else stream(event)
    async with front.client.get(f"{front.url}{PATH}/{response_id}?stream=true") as got:
        body = await got.read()
    assert (got.status, body.startswith(event)) == (200, True)
    rest = body.removeprefix(event)
    if is_whole:
        assert rest == LAST
    else:
        assert rest.startswith(b'event: error\ndata: {"type": "error", "error": {')
    await front.idle()


async def test_retried_request_has_the_id_of_the_engine_that_answers(start_engine, start_gateway):
    full, storing = (
        await start_engine(whole(b"{}", "503 Full")),
        await start_engine(StoringEngine()),
    )
    front = await start_gateway(full, storing)
    for _ in range(6):
        assert key_of(await create(front)) == pod_key(f"default/{storing.name}", "")
    assert full.requests


async def test_request_with_another_model_is_a_404(engines, start_gateway, make_service):
    front = await start_gateway()
    front.publish(make_service(engines[0]), make_service(engines[1], name="other"))
    response_id = await create(front)
    status, body = await front.ask(PATH, model="other", previous_response_id=response_id)
    assert (status, json.loads(body)["error"]["message"]) == (
        404,
        f"the response `{response_id}` is not of the model `other`: send the model that it was created "
        "with",
    )
    assert not engines[1].requests


async def test_a_route_leads_to_the_service_with_the_response(engines, start_gateway, make_service):
    """The backend may have weight 0 by now, and the route's mirror gets no copy."""
    services = make_service(engines[0]), make_service(engines[1], name="other")
    mirrored = make_service(engines[2], name="mirrored")
    front = await start_gateway()

    def publish(*backends):
        mirrors = (Mirror("mirrored", None, 100.0),)
        rule = RouteRule(matches=(), backends=backends, mirrors=mirrors)
        route = Route("default", "route", "any", 0, (rule,))
        front.snapshots.publish(Snapshot((*services, mirrored), (route,)))

    publish(("chat", 1), ("other", 0))
    response_id = await create(front, model="any")
    await front.idle_with_copies()
    assert [len(engine.requests) for engine in engines] == [1, 0, 1]
    publish(("chat", 0), ("other", 1))
    for _ in range(5):
        await create(front, model="any", previous_response_id=response_id)
    await front.idle_with_copies()
    assert [len(engine.requests) for engine in engines] == [6, 0, 1]
    await create(front, model="any")
    assert len(engines[1].requests) == 1


async def test_continued_response_waits_in_no_queue(engines, start_gateway, make_service):
    front = await start_gateway()
    front.publish(make_service(engines[0], objectives=Objectives(1e-6, 1e-6)))
    response_id = await create(front)
    assert await create(front, previous_response_id=response_id) in engines[0].behavior.stored
    await front.idle()
