"""Serves an aiohttp application while a block runs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def served(
    app: web.Application, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[str]:
    """Serve an application. Yields HOST:PORT. port: 0 for a free one."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=4096).start()
        yield f"{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
