"""Scrapes of engines that send more than metrics."""

import asyncio

from penstock.clients.clock import steady
from penstock.clients.scrape import MAX_METRICS_BYTES, Scraper
from penstock.core.scaling.signals import Missing


async def test_metrics_without_end_are_given_up():
    num_sent = 0

    async def connected(reader, writer):
        nonlocal num_sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while num_sent < 16 * MAX_METRICS_BYTES:
                writer.write(bytes(1 << 16))
                await writer.drain()
                num_sent += 1 << 16
        except ConnectionError:
            pass
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    scraper = Scraper(steady)
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await scraper.read("chat-0", address) == Missing("chat-0", "more than 4 MiB")
    await scraper.close()
    assert num_sent < 16 * MAX_METRICS_BYTES
