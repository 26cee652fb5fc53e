"""Bytes and headers relayed between client and engine."""

import asyncio
import json

import pytest
from tests.gateway.engine_answers import CHUNKS, DONE, EVENT, stream

from penstock.core.spec.objectives import Objectives

ROUTES = ["/v1/chat/completions", "/v1/completions"]


@pytest.mark.parametrize("path", ROUTES)
async def test_stream_is_relayed_unchanged(start_engine, start_gateway, path):
    engine = await start_engine()
    front = await start_gateway(engine)

    async with front.post(path) as got:
        assert got.status == 200
        assert got.content_type == "text/event-stream"
        assert await got.read() == b"".join(CHUNKS) + DONE

    assert engine.requests[0].path == path
    await front.idle()
    assert await front.metric("penstock_gateway_responses_total", code="200", revision="r1") == 1


@pytest.mark.parametrize(
    ("options", "is_hidden"),
    [
        ({}, True),
        ({"stream_options": None}, True),
        ({"stream_options": {"include_usage": 1}}, False),
    ],
)
async def test_usage_is_counted_but_sent_only_to_a_client_that_asks_for_it(
    start_engine, start_gateway, options, is_hidden
):
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":40}}\n\n'
    front = await start_gateway(await start_engine(stream(EVENT, usage + DONE)))

    async with front.post(**options) as got:
        assert await got.read() == EVENT + (b"" if is_hidden else usage) + DONE

    await front.idle()
    assert await front.metric("penstock_gateway_tokens_total", kind="output") == 40


@pytest.mark.parametrize("path", ROUTES)
async def test_complete_response_is_relayed_with_its_length(start_engine, start_gateway, path):
    front = await start_gateway(await start_engine())

    async with front.post(path, stream=False) as got:
        body = await got.read()

    assert (got.status, got.headers["content-length"]) == (200, str(len(body)))
    assert json.loads(body)["choices"][0]["text"] == "all of it"


async def test_request_body_is_relayed_unchanged(start_engine, start_gateway):
    engine = await start_engine()
    front = await start_gateway(engine)
    body = b'{ "model":"chat",\n "stream" : true, "x":1.0e3, "y":"\\u00e9" }'

    async with front.client.post(
        front.url + "/v1/completions?trace=1",
        data=body,
        headers={"content-type": "application/json"},
    ) as got:
        await got.read()

    assert engine.requests[0].body == body
    assert engine.requests[0].path == "/v1/completions?trace=1"


async def test_keys_cookies_and_hop_by_hop_headers_are_not_forwarded(start_engine, start_gateway):
    engine = await start_engine()
    front = await start_gateway(engine)
    headers = {
        "Authorization": "Bearer secret", "Cookie": "a=secret", "X-Api-Key": "secret",
        "Connection": "keep-alive, X-Private", "X-Private": "secret", "TE": "trailers",
        "X-Custom": "kept", "traceparent": "00-abc",
    }  # fmt: skip

    async with front.client.post(
        front.url + "/v1/chat/completions", json={"model": "chat"}, headers=headers
    ) as got:
        await got.read()

    seen = engine.requests[0].headers
    assert "secret" not in str(seen)
    assert "te" not in seen
    assert "accept-encoding" not in seen
    assert (seen["x-custom"], seen["traceparent"]) == ("kept", "00-abc")


@pytest.mark.parametrize(
    ("objectives", "told"),
    [(Objectives(30.0, 0.05), "0.05"), (Objectives(ttft_s=30.0), None), (None, None)],
)
async def test_tpot_header_is_set_by_the_gateway_alone(
    start_engine, start_gateway, make_service, objectives, told
):
    engine = await start_engine()
    front = await start_gateway()
    front.publish(make_service(engine, objectives=objectives))

    async with front.client.post(
        front.url + "/v1/completions",
        json={"model": "chat"},
        headers={"X-Penstock-TPOT-S": "0.001"},
    ) as got:
        await got.read()

    assert engine.requests[0].headers.get("x-penstock-tpot-s") == told


async def test_response_headers_pass_except_hop_by_hop(start_engine, start_gateway):
    async def behave(request):
        extra = (
            "x-engine: yes\r\nserver: secret\r\nkeep-alive: timeout=5\r\nx-request-id: other\r\n"
        )
        await request.whole(b"{}", extra=extra)

    front = await start_gateway(await start_engine(behave))

    async with front.post(stream=False) as got:
        await got.read()

    assert got.headers["x-engine"] == "yes"
    assert "server" not in got.headers
    assert "keep-alive" not in got.headers
    assert got.headers["x-request-id"] != "other"


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [("abc-1.2:3_4", True), ("x" * 129, False), ("two words", False), ("", False)],
)
async def test_request_id_is_propagated_or_generated(start_engine, start_gateway, given, is_kept):
    engine = await start_engine()
    front = await start_gateway(engine)

    async with front.client.post(
        front.url + "/v1/completions", json={"model": "chat"}, headers={"x-request-id": given}
    ) as got:
        await got.read()

    used = got.headers["x-request-id"]
    assert (used == given) == is_kept
    assert engine.requests[0].headers["x-request-id"] == used
    assert len(used) >= 3


@pytest.mark.parametrize(
    ("status", "attempts"),
    [
        ("500 Internal Server Error", 2),
        ("507 Insufficient Storage", 2),
        ("501 Not Implemented", 1),
        ("504 Gateway Timeout", 1),
        ("400 Bad Request", 1),
        ("429 Too Many", 1),
    ],
)
async def test_error_of_an_engine_is_passed_on(start_engine, start_gateway, status, attempts):
    """An error is retried on a second engine, but not on a third."""

    async def behave(request):
        await request.whole(
            b'{"error": {"message": "mine"}}', status=status, extra="retry-after: 7\r\n"
        )

    engines = [await start_engine(behave) for _ in range(3)]
    front = await start_gateway(*engines)

    async with front.post() as got:
        assert await got.read() == b'{"error": {"message": "mine"}}'

    assert (got.status, got.headers["retry-after"]) == (int(status.split()[0]), "7")
    assert sum(len(engine.requests) for engine in engines) == attempts


async def test_response_starts_with_the_first_event(start_engine, start_gateway):
    go = asyncio.Event()

    async def behave(request):
        await request.head()
        await go.wait()
        await request.chunk(CHUNKS[0])
        await request.chunk(DONE)
        await request.end()

    engine = await start_engine(behave)
    front = await start_gateway(engine)
    asking = asyncio.create_task(front.post().__aenter__())
    await engine.arrived.wait()
    await asyncio.sleep(0.05)
    assert not asking.done()

    go.set()

    got = await asking
    assert await got.read() == CHUNKS[0] + DONE


async def test_events_are_relayed_complete_and_at_once(start_engine, start_gateway):
    """An event in two chunks is relayed once it is complete."""
    go = asyncio.Event()

    async def behave(request):
        await request.head()
        await request.chunk(CHUNKS[0] + CHUNKS[1][:7])
        await go.wait()
        await request.chunk(CHUNKS[1][7:] + DONE)
        await request.end()

    front = await start_gateway(await start_engine(behave))

    async with front.post() as got:
        assert await got.content.readany() == CHUNKS[0]
        go.set()
        assert await got.content.read() == CHUNKS[1] + DONE


async def test_large_response_is_streamed_with_backpressure(start_engine, start_gateway):
    size = 64_000_000  # more than the sockets between hold
    sent = 0

    async def behave(request):
        nonlocal sent
        await request.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            % size
        )
        while sent < size:
            await request.send(b"x" * 500_000)
            sent += 500_000

    front = await start_gateway(await start_engine(behave), max_buffered_answer_bytes=100_000)

    async with front.post(stream=False) as got:
        await asyncio.sleep(0.2)
        assert sent < size  # the engine is held back by a client that does not read
        assert len(await got.read()) == size


async def test_model_name_in_two_namespaces(start_engine, start_gateway, make_service):
    engine = await start_engine()
    front = await start_gateway()
    front.publish(make_service(engine, namespace="a"), make_service(namespace="b", created_s=1))
    status, _ = await front.ask(stream=False)
    assert status == 200
    assert len(engine.requests) == 1
    front.publish(make_service(namespace="a"), make_service(engine, namespace="b", created_s=1))

    status, _ = await front.ask(stream=False, model="b/chat", extra=[1, "é"])
    assert status == 200
    assert json.loads(engine.requests[1].body) == {
        "model": "chat",
        "stream": False,
        "extra": [1, "é"],
    }

    async with front.client.get(front.url + "/v1/models") as got:
        assert [m["id"] for m in (await got.json())["data"]] == ["chat", "b/chat"]


async def test_models(start_engine, start_gateway, make_service):
    front = await start_gateway()
    front.publish(
        make_service(name="chat", created_s=7), make_service(name="svc", served_name="Qwen3.1")
    )

    async with front.client.get(front.url + "/v1/models") as got:
        models = await got.json()

    expected = {"id": "chat", "object": "model", "created": 7, "owned_by": "penstock"}
    assert models["object"] == "list"
    assert models["data"][0] == expected
    assert models["data"][1]["id"] == "Qwen3.1"


async def test_in_flight_metric_by_service_and_revision(start_engine, start_gateway, make_service):
    hold = asyncio.Event()

    async def slow(request):
        await hold.wait()
        await request.whole(b"{}")

    engine = await start_engine(slow, revision="r7")
    front = await start_gateway()
    front.publish(make_service(engine, weights={"r7": 100}))
    asking = asyncio.create_task(front.ask(stream=False))
    await engine.arrived.wait()
    name, labels = (
        "penstock_gateway_requests_in_flight",
        {"service": "default/chat", "revision": "r7"},
    )
    assert await front.metric(name, **labels) == await front.metric(name) == 1
    hold.set()
    await asking


async def test_responses_name_the_service_and_the_revision(
    start_engine, start_gateway, make_service
):
    """Responses of an engine cannot name others: its headers of these names are dropped."""

    async def claims(request):
        await request.whole(b"{}", extra="x-penstock-service: a/b\r\nx-penstock-revision: r9\r\n")

    front = await start_gateway()
    front.publish(make_service(await start_engine(claims, "r7"), weights={"r7": 100}))
    async with front.post(stream=False) as got:
        assert got.headers.getall("x-penstock-service") == ["default/chat"]
        assert got.headers.getall("x-penstock-revision") == ["r7"]
    async with front.post(model="no") as got:
        assert got.status == 404
        assert not {"x-penstock-service", "x-penstock-revision"} & set(got.headers)


async def test_error_of_the_gateway_names_the_service(start_gateway, make_service):
    front = await start_gateway(wait_for_endpoint_s=0.01)
    front.publish(make_service())
    async with front.post() as got:
        assert (got.status, got.headers["x-penstock-service"]) == (503, "default/chat")
        assert "x-penstock-revision" not in got.headers
