"""Scrapes of engines that send more than metrics, or nothing."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp.test_utils import unused_port

from penstock.clients.machine.clock import steady
from penstock.clients.pods.scrape import (
    MAX_METRICS_BYTES,
    MAX_SCRAPES,
    Scraper,
    progress_of,
)
from penstock.core.observed.fetches import FetchProgress
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
        assert await scraper.read("default", "chat-0", address) == Missing(
            "chat-0", "more than 4 MiB"
        )
    await scraper.close()
    assert num_sent < 16 * MAX_METRICS_BYTES


@asynccontextmanager
async def hanging_engine():
    """Address of an engine that never answers, and the queue of its connections."""
    connections = asyncio.Queue()

    async def connected(reader, writer):
        connections.put_nowait(writer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=4 * MAX_SCRAPES)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", connections


async def test_engines_that_hang_delay_no_scrape_of_another_namespace():
    scraper = Scraper(steady)
    async with hanging_engine() as (address, connections):
        hung = [
            asyncio.create_task(scraper.read("theirs", f"engine-{number}", address))
            for number in range(2 * MAX_SCRAPES)
        ]
        for _ in range(MAX_SCRAPES // 2):
            await connections.get()
        refused = await scraper.read("ours", "chat-0", f"127.0.0.1:{unused_port()}")
        assert refused == Missing("chat-0", "ClientConnectorError")
        assert not any(task.done() for task in hung)
        for task in hung:
            task.cancel()
        await asyncio.gather(*hung, return_exceptions=True)
        await scraper.close()


async def test_engines_that_hang_one_after_the_other_end_the_scrape_of_their_namespace():
    scraper = Scraper(steady)
    async with hanging_engine() as (address, connections):
        found = await asyncio.gather(
            *(scraper.read("theirs", "chat-0", address) for _ in range(4 * MAX_SCRAPES))
        )
        await scraper.close()
        assert {*found} == {Missing("chat-0", "TimeoutError")}
        assert connections.qsize() < len(found)


FETCH = (
    "penstock:model_fetch_bytes {done}\npenstock:model_fetch_total_bytes {total}\n"
    "penstock:model_fetch_bytes_per_second {rate}\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            FETCH.format(done="1e9", total="3e9", rate="2.5e6"),
            FetchProgress(10**9, 3 * 10**9, 2.5e6),
        ),
        (FETCH.format(done=0, total=0, rate=0), None),
        (FETCH.format(done=1, total="NaN", rate=0), None),
        (FETCH.format(done=-1, total=2, rate=0), None),
        ("penstock:model_fetch_bytes 1\n", None),
        ("penstock:model_fetch_bytes\n", None),
        ("", None),
    ],
)
def test_progress_of_a_fetch(text, expected):
    assert progress_of(text) == expected


async def test_a_container_that_hangs_has_no_progress():
    async with hanging_engine() as (address, connections):
        scraper = Scraper(steady)
        assert await scraper.fetch_progress("default", "chat-0", address) is None
        await scraper.close()
        await (await connections.get()).wait_closed()
