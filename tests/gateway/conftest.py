"""Fixtures of all tests of the gateway, with real sockets on both sides."""

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.gateway.support import fixtures
from tests.gateway.support.front import until
from tests.gateway.support.services import service
from tests.gateway.support.virtual_loop import VirtualLoop

from penstock.gateway.snapshots.snapshot import Service

plain_or_tls = fixtures.plain_or_tls
quick_servers = fixtures.quick_servers
start_engine = fixtures.start_engine
start_gateway = fixtures.start_gateway


@pytest.fixture(autouse=True)
async def no_unseen_errors() -> AsyncIterator[None]:
    """Fail a test in which a callback raises, or a task fails whose result is not awaited."""
    unseen: list[str] = []

    def note(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        unseen.append(f"{context['message']}: {context.get('exception')!r}")

    asyncio.get_running_loop().set_exception_handler(note)
    yield
    await asyncio.sleep(0)
    gc.collect()  # a task in a cycle tells when it is freed
    gc.freeze()  # what lives on is not looked at again after each test
    assert not unseen


@pytest.fixture(autouse=True)
def fresh_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each scrape have the values of its time."""
    monkeypatch.setattr("penstock.clients.metrics.page.MAX_AGE_S", 0.0)


@pytest.fixture(name="until")
def until_fixture() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    return until


@pytest.fixture
def make_service() -> Callable[..., Service]:
    return service


@pytest.fixture
def run_virtually() -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Run a coroutine function to its end on a VirtualLoop."""

    def run_on_loop(main: Callable[[], Awaitable[None]]) -> None:
        async def main_coroutine() -> None:
            await main()

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(main_coroutine())

    return run_on_loop


def full_listener() -> tuple[str, list[socket.socket]]:
    """The address of a listener whose queue is full, so that connecting to it hangs."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    host, port = listener.getsockname()
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex((host, port))
    return f"{host}:{port}", [listener, *fillers]


@pytest.fixture
def stuck_address() -> Iterator[str]:
    address, sockets = full_listener()
    yield address
    for each in sockets:
        each.close()
