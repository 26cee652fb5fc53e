"""The HTTP server of the operator, for kubelet, Prometheus and commands."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from penstock_engine.http.connections_by_address import ConnectionsByAddress
from penstock_engine.http.loopback import listen_on_loopback
from penstock_engine.http.protocol import IDLE_CONNECTION_S, BoundedProtocol

# Bound on open connections. Kubelet, Prometheus and the API server, which relays commands, have a few each.
MAX_CONNECTIONS = 64
# Seconds without reading its answer after which a client is disconnected, as the gateway's
# --client-stall-timeout-s.
CLIENT_STALL_TIMEOUT_S = 60.0
# Seconds at the end for the answers to open requests, and again for the ends of those that were cut off.
LAST_ANSWERS_S = 1.0


@asynccontextmanager
async def serving(app: ASGIApp, host: str, port: int) -> AsyncIterator[int]:
    """Serve in the block, and yield the port, which is a free one for port 0. Raises OSError.

    The connections of requests that are open LAST_ANSWERS_S after the end are reset, and requests that do not
    end then within the same time are cancelled.
    """
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_CONNECTION_S,
    )
    state = ServerState()
    protocol = partial(
        BoundedProtocol,
        config=config,
        server_state=state,
        app_state={},
        limit=ConnectionsByAddress(MAX_CONNECTIONS),
        client_stall_timeout_s=CLIENT_STALL_TIMEOUT_S,
    )
    server = await asyncio.get_running_loop().create_server(protocol, host, port)
    servers = [server, *await listen_on_loopback(protocol, host, server)]
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for each in servers:
            each.close()
        await _close(state)


async def _close(state: ServerState) -> None:
    for connection in list(state.connections):
        connection.shutdown()
    await _wait_for(state.tasks)
    for connection in list(state.connections):
        connection.transport.abort()
    await _wait_for(state.tasks)  # a stream ends by itself when its client is gone
    for task in state.tasks:
        task.cancel()
    await asyncio.gather(*state.tasks, return_exceptions=True)


async def _wait_for(tasks: set[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=LAST_ANSWERS_S)
