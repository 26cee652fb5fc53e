"""Runs the tests of TLS with both event loops."""

import asyncio
from collections.abc import Callable, Mapping

import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop of the process is uvloop's, whose transports of TLS are its own."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
