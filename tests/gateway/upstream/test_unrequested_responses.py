"""An engine that sends responses which no request asked for: no client gets them, and they cost little."""

import asyncio
import json

from aiohttp.client_proto import ResponseHandler
from tests.gateway.engine_answers import whole

from penstock.clients.pods.connections import MAX_INFORMATIONAL, PIECE_BYTES, PodConnection


def answer_with_tenant(request):
    return request.whole(json.dumps({"answer to": json.loads(request.body)["user"]}).encode())


async def test_late_second_response_is_not_the_answer_to_the_next_request(
    start_engine, start_gateway, until
):
    """HTTP/1.1 has no numbers of requests: bytes on an idle connection would be the next answer."""
    sent = asyncio.Event()

    async def answer_twice(request):
        await answer_with_tenant(request)
        if not sent.is_set():
            asyncio.get_running_loop().call_later(0.05, later, request)

    def later(request):
        body = b'{"answer to": "alice again"}'
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        request.writer.write(head % len(body) + body)
        sent.set()

    engine = await start_engine(answer_twice)
    front = await start_gateway(engine)
    assert await front.ask(stream=False, user="alice") == (200, b'{"answer to": "alice"}')
    await sent.wait()
    await until(engine.requests[0].writer.is_closing)

    assert await front.ask(stream=False, user="bob") == (200, b'{"answer to": "bob"}')
    assert len({request.writer for request in engine.requests}) == 2


async def test_idle_connection_is_used_again(start_engine, start_gateway):
    engine = await start_engine(whole(b"{}"))
    front = await start_gateway(engine)
    for _ in range(3):
        assert await front.ask(stream=False) == (200, b"{}")
    assert len({request.writer for request in engine.requests}) == 1


async def answer_after_informational(request, number):
    await request.send(b"HTTP/1.1 100 Continue\r\n\r\n" * number)
    await request.whole(b"{}")


async def test_a_few_informational_responses_are_skipped(start_engine, start_gateway):
    engine = await start_engine(
        lambda request: answer_after_informational(request, MAX_INFORMATIONAL)
    )
    front = await start_gateway(engine)
    for _ in range(2):  # each response has a bound of its own
        assert await front.ask(stream=False) == (200, b"{}")
    assert len({request.writer for request in engine.requests}) == 1


async def test_more_informational_responses_are_no_valid_response(start_engine, start_gateway):
    """aiohttp skips any number of them, and other clients wait meanwhile."""
    engine = await start_engine(
        lambda request: answer_after_informational(request, MAX_INFORMATIONAL + 1)
    )
    front = await start_gateway(engine)
    assert (await front.ask(stream=False))[0] == 502
    assert await front.metric("penstock_gateway_retries_total", reason="invalid") == 1


async def test_read_full_of_heads_is_not_parsed_to_its_end(
    start_engine, start_gateway, monkeypatch
):
    parsed = []
    parse = ResponseHandler.data_received

    def note(connection, data):
        if isinstance(connection, PodConnection):  # not that of the test's client
            parsed.append(len(data))
        parse(connection, data)

    monkeypatch.setattr(ResponseHandler, "data_received", note)
    engine = await start_engine(lambda request: answer_after_informational(request, 2000))
    front = await start_gateway(engine)
    assert (await front.ask(stream=False))[0] == 502
    assert set(parsed) == {PIECE_BYTES}
    assert len(parsed) == len(engine.requests)


async def test_endless_informational_responses_end_the_attempt(start_engine, start_gateway):
    async def answer(request):
        while True:
            await request.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000)

    engine = await start_engine(answer)
    front = await start_gateway(engine)
    async with asyncio.timeout(10):
        assert (await front.ask(stream=False))[0] == 502
