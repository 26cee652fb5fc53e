"""Request bodies: parsing, and limits on their memory."""

import asyncio
import json
import tracemalloc

import pytest

from penstock.core.routing.route import Mirror, RouteRule
from penstock.gateway.apis.request import MAX_CONTAINERS
from penstock.gateway.snapshots.snapshot import Route, Snapshot

JSON = {"content-type": "application/json"}
MIB = 1 << 20


async def post(front, body: bytes) -> tuple[int, dict]:
    url = front.url + "/v1/chat/completions"
    async with front.client.post(url, data=body, headers=JSON) as got:
        return got.status, await got.json(content_type=None)


def nested(depth: int, model: str) -> bytes:
    return b'{"model": "%s", "x": %s1%s}' % (model.encode(), b'{"a":' * depth, b"}" * depth)


async def test_body_with_too_many_lists_is_refused_before_parsing(start_engine, start_gateway):
    engine = await start_engine()
    front = await start_gateway(engine)
    body = b'{"model": "chat", "x": [' + b"[]," * MAX_CONTAINERS + b"[]]}"
    assert len(body) < front.gateway.state.settings.max_body_bytes

    tracemalloc.start()
    status, answer = await post(front, body)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert status == 400
    assert str(MAX_CONTAINERS) in answer["error"]["message"]
    assert peak_bytes < 8 * len(body)
    assert engine.requests == []


async def test_unused_fields_are_not_parsed_into_objects(start_engine, start_gateway):
    front = await start_gateway(await start_engine(lambda request: request.whole(b"{}")))
    body = b'{"model": "chat", "x": [' + b"[]," * (MAX_CONTAINERS // 2) + b"[]]}"

    tracemalloc.start()
    status, _ = await post(front, body)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert status == 200
    assert peak_bytes < 12 * len(body)  # an empty list of Python's is 56 bytes, here it was 3


@pytest.mark.parametrize(
    "kind", ["application/x-www-form-urlencoded", "application/json; charset=utf-8"]
)
async def test_engines_get_json_whatever_the_client_called_it(start_engine, start_gateway, kind):
    """`curl -d` says that a body is a form."""
    engine = await start_engine(lambda request: request.whole(b"{}"))
    front = await start_gateway(engine)
    url, body = front.url + "/v1/chat/completions", b'{"model": "chat", "messages": []}'
    async with front.client.post(url, data=body, headers={"content-type": kind}) as got:
        assert got.status == 200
    assert engine.requests[0].headers["content-type"] == "application/json"


@pytest.mark.parametrize("model", ["chat", "default/chat"])
async def test_deeply_nested_body(start_engine, start_gateway, model):
    engine = await start_engine()
    front = await start_gateway(engine)
    answers = {depth: (await post(front, nested(depth, model)))[0] for depth in range(150, 230)}
    assert set(answers.values()) == {200, 400}
    for request in engine.requests:
        assert json.loads(request.body)["model"] == "chat"


async def test_lone_surrogate_in_the_user(start_engine, start_gateway, make_service):
    engine = await start_engine()
    front = await start_gateway(synced=False)
    rule = RouteRule((), (("chat", 1),), affinity="User")
    routes = (Route("default", "route", "routed", 0, (rule,)),)
    front.snapshots.publish(Snapshot((make_service(engine),), routes))
    status, answer = await post(front, b'{"model": "routed", "user": "\\ud800"}')
    assert status == 400
    assert "hex escape" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("stream", "is_stream"),
    [("true", 1), ("1", 1), ('"true"', 1), ("false", 0), ("0", 0), ("null", 0), ('"maybe"', 0)],
)
async def test_stream_field_is_read_as_engines_do(start_engine, start_gateway, stream, is_stream):
    engine = await start_engine()
    front = await start_gateway(engine)

    async def whole_or_stream(request):
        if not is_stream:
            await request.whole(b"{}")
            return
        await request.head()
        await request.chunk(b'data: {"n": 1}\n\ndata: [DONE]\n\n')
        await request.end()

    engine.behavior = whole_or_stream
    assert (await post_raw(front, b'{"model": "chat", "stream": %s}' % stream.encode())) == 200
    await front.idle()
    stats = front.gateway.state.stats.get("default/chat")
    assert stats.ended == 1
    assert sum(stats.ttft_s.histogram().counts) == is_stream


async def post_raw(front, body: bytes) -> int:
    async with front.client.post(
        front.url + "/v1/chat/completions", data=body, headers=JSON
    ) as got:
        await got.read()
        return got.status


async def test_total_memory_of_bodies_is_limited(start_gateway, make_service, until):
    front = await start_gateway(max_held_body_bytes=2_000_000, synced=False)
    front.publish(make_service(), make_service(name="other", namespace="other"))
    memory = front.gateway.state.limits.body_bytes

    waiting = []
    for number, (model, size) in enumerate((("chat", 800_000), ("other", 500_000)), 1):
        waiting.append(asyncio.create_task(front.ask(model=model, padding="x" * size)))
        await until(lambda number=number: front.gateway.state.waiting == number)
    assert 1_300_000 < memory.held < 1_301_000
    status, answer = await front.ask(padding="x" * 400_000)

    assert status == 503
    assert b"memory" in answer
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await until(lambda: memory.held == 0)


async def test_memory_of_bodies_per_service_is_limited(
    start_engine, start_gateway, make_service, until
):
    engine = await start_engine()
    front = await start_gateway(max_held_body_bytes=5 * MIB, synced=False)
    front.publish(make_service(name="dead"), make_service(engine))
    padding = "x" * (MIB - 1000)
    waiting = [asyncio.create_task(front.ask(model="dead", padding=padding)) for _ in range(2)]
    await until(lambda: front.gateway.state.waiting == 2)

    assert (await front.ask(model="dead", padding=padding))[0] == 503
    assert (await front.ask(padding="x" * 400_000))[0] == 200

    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await until(lambda: front.gateway.state.limits.body_bytes.held == 0)


async def test_body_is_freed_with_the_first_byte(start_engine, start_gateway, until):
    go = asyncio.Event()

    async def begins(request):
        request.body = b""
        await request.head()
        await request.chunk(b'data: {"n": 1}\n\n')
        await go.wait()
        await request.chunk(b"data: [DONE]\n\n")
        await request.end()

    front = await start_gateway(await start_engine(begins))
    body = json.dumps({"model": "default/chat", "stream": True, "x": "y" * 2 * MIB}).encode()

    async def stream() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
        writer.writelines([head % len(body), body])
        await reader.readuntil(b'"n": 1')
        begun.append(writer)
        await go.wait()
        await reader.readuntil(b"[DONE]")
        writer.close()

    begun: list[asyncio.StreamWriter] = []
    tracemalloc.start()
    tasks = [asyncio.create_task(stream()) for _ in range(8)]
    await until(lambda: len(begun) == 8)
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert front.gateway.state.limits.body_bytes.held == 0
    assert held_bytes < 3 * MIB  # of 16 MiB that were sent
    go.set()
    await asyncio.gather(*tasks)


async def test_body_of_a_copy_counts_for_copies_until_its_response(
    start_engine, start_gateway, make_service, until
):
    go = asyncio.Event()

    async def late(request):
        await go.wait()
        await request.whole(b"{}")

    main, other = await start_engine(), await start_engine(late)
    front = await start_gateway(synced=False, max_held_body_bytes=16 * MIB)
    mirrors = (Mirror("new", None, 100),)
    rule = RouteRule((), (("old", 1),), mirrors=mirrors)
    services = make_service(main, name="old"), make_service(other, name="new")
    front.snapshots.publish(Snapshot(services, (Route("default", "route", "chat", 0, (rule,)),)))

    assert (await front.ask(stream=False, x="y" * 800_000))[0] == 200
    await until(lambda: other.requests)
    mirror = front.gateway.state.mirror
    assert mirror.held_bytes > 800_000
    assert await front.metric("penstock_gateway_held_body_bytes") == mirror.held_bytes
    assert (await front.ask(stream=False, x="y" * 800_000))[0] == 200
    assert mirror.held_bytes < MIB
    go.set()
    await until(lambda: mirror.held_bytes == 0)
