"""Memory of a stream whose client does not read it."""

import asyncio
import fcntl
import socket
import struct
import termios

BODY = b'{"model": "chat", "stream": true}'
REQUEST = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (
    len(BODY), BODY,
)  # fmt: skip
EVENT = b"data: " + b"x" * 10_000 + b"\n\n"


async def test_gateway_takes_little_of_a_stream_that_is_not_read(
    start_engine, start_gateway, until
):
    written = 0
    writers = []

    async def flood(request):
        nonlocal written
        writers.append(request.writer)
        await request.head()
        while True:
            written += len(EVENT)
            await request.chunk(EVENT)

    def taken_bytes():
        """Bytes that have left the engine's process and kernel."""
        outgoing = writers[0].get_extra_info("socket")
        unsent = struct.unpack("i", fcntl.ioctl(outgoing, termios.TIOCOUTQ, bytes(4)))[0]
        return written - unsent - writers[0].transport.get_write_buffer_size()

    front = await start_gateway(await start_engine(flood))
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", front.port))
    client.sendall(REQUEST)
    await until(lambda: bool(writers))
    before = None
    async with asyncio.timeout(10):
        while (now := taken_bytes()) != before:
            before = now
            await asyncio.sleep(0.3)
    client.close()
    assert now < 300_000
