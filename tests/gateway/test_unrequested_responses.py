"""An engine that sends a response which no request asked for: no client gets it."""

import asyncio
import json

from gateway.engine_answers import whole


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
