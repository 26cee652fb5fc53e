"""Scrapes of many engines in one pass, over real sockets."""

import asyncio
import sys
from contextlib import asynccontextmanager

import pytest

from penstock.clients.pods import scrape as scraping
from penstock.clients.pods.scrape import MAX_SCRAPES, Scraper
from penstock.core.scaling.signals import Missing

NO_METRICS = Missing("p", "vllm:num_requests_running is absent")


@pytest.fixture(autouse=True)
def _no_time_limit(monkeypatch):
    monkeypatch.setattr(scraping, "TIMEOUT_S", 60.0)


@asynccontextmanager
async def engines(answer):
    """Serve empty metrics over connections that stay open. `answer` is awaited before each response."""

    async def connected(reader, writer):
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await answer()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=1024)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def scrape(scraper, address, number):
    return await asyncio.gather(*(scraper.read("default", "p", address) for _ in range(number)))


async def calls_of_a_pass(number):
    """Count the function calls of a pass over so many engines with open connections, and of the engines."""
    all_are_asked, num_asked = asyncio.Event(), 0
    num_calls = 0

    async def answer():
        nonlocal num_asked
        num_asked += 1
        if num_asked == number:
            all_are_asked.set()
        await all_are_asked.wait()

    def count(frame, event, argument):
        nonlocal num_calls
        num_calls += event in ("call", "c_call")

    scraper = Scraper(lambda: 0.0)
    async with engines(answer) as address:
        await scrape(scraper, address, number)
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            assert await scrape(scraper, address, number) == [NO_METRICS] * number
        finally:
            sys.setprofile(before)
            await scraper.close()
    return num_calls


async def test_the_work_of_a_scrape_does_not_grow_with_the_number_of_engines():
    few, many = [await calls_of_a_pass(number) / number for number in (25, 200)]
    assert many < 1.2 * few


async def test_scrapes_of_a_namespace_at_the_same_time_are_bounded():
    """The others wait for their turn, which their time limit does not count."""
    most = MAX_SCRAPES // 2
    num_asked, bound_is_reached, may_answer = 0, asyncio.Event(), asyncio.Event()

    async def answer():
        nonlocal num_asked
        num_asked += 1
        if num_asked == most:
            bound_is_reached.set()
        await may_answer.wait()

    scraper = Scraper(lambda: 0.0)
    async with engines(answer) as address:
        readings = asyncio.create_task(scrape(scraper, address, most + 40))
        await bound_is_reached.wait()
        for _ in range(100):  # turns of the loop, in which one more could connect
            await asyncio.sleep(0)
        assert num_asked == most
        may_answer.set()
        assert await readings == [NO_METRICS] * (most + 40)
        await scraper.close()
    assert num_asked == most + 40
