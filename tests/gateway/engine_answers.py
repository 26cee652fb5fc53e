"""Answers of fake engines, whole, streamed and broken."""

import asyncio

from penstock.core.routing.apis import APIS

CHUNKS = [b'data: {"n": %d}\n\n' % n for n in range(5)]
EVENT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
# The last event of each API's stream.
LAST_EVENTS = {
    api.path: DONE if api.errors == "OpenAI" else b'event: %b\ndata: {"n": 9}\n\n' % name
    for name, form in ((b"message_stop", "Anthropic"), (b"response.completed", "Responses"))
    for api in APIS
    if api.errors in ("OpenAI", form)
}
STREAMED = [api.path for api in APIS if api.generates]


def whole(body, status="200 OK"):
    return lambda request: request.whole(body, status)


def stream(*chunks):
    async def behave(request):
        await request.head()
        for chunk in chunks:
            await request.chunk(chunk)
        await request.end()

    return behave


async def hangs(request):
    await asyncio.sleep(3600)


async def begins(request):
    """Send the first event of a stream, and then nothing."""
    await request.head()
    await request.chunk(EVENT)
    await asyncio.Event().wait()


async def resets(request):
    request.reset()


async def breaks(request):
    await request.whole(b"{}", status="500 Internal Server Error")


async def cuts(request):
    """Resets the connection in the middle of a stream."""
    await request.head()
    await request.chunk(b'data: {"n": 0}\n\n')
    request.reset()
