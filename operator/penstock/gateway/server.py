"""The gateway process: sockets, the watch, signals, and an orderly end."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import uvicorn

from penstock.clients.kube import connect
from penstock.gateway.app import Gateway
from penstock.gateway.fleet import Fleet
from penstock.gateway.http_protocol import Connections, GatewayProtocol
from penstock.gateway.open_files import connections_within_limit
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.upstream import Upstream

logger = logging.getLogger(__name__)

BEAT_S = 0.5
# For the error events of streams that are cut at the end of the drain.
LAST_WORDS_S = 6
# Longest interval between two checks for slow clients.
SLOW_CLIENTS_S = 1.0


class Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals begin a drain, here, and a process that drained exits with 0."""
        yield

    @property
    def port(self) -> int:
        """The one that was taken, when any was asked for."""
        port: int = self.servers[0].sockets[0].getsockname()[1]
        return port


def server_for(gateway: Gateway) -> Server:
    settings = gateway.shared.settings
    return Server(
        uvicorn.Config(
            gateway.app,
            host=settings.host,
            port=settings.port,
            http=partial(GatewayProtocol, shared=Connections(settings)),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,  # longer than the idle time of most clients and load balancers
            timeout_graceful_shutdown=int(settings.drain_timeout_s) + LAST_WORDS_S,
            backlog=4096,
        )
    )


async def serve(settings: GatewaySettings) -> None:
    """Until SIGTERM or SIGINT and the drain that follows. Raises KubeError without credentials."""
    max_connections = connections_within_limit(settings.max_connections)
    settings = replace(settings, max_connections=max_connections)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    fleet = Fleet()
    async with (
        await connect(user_agent="penstock-gateway") as kube,
        Upstream(settings) as upstream,
        asyncio.TaskGroup() as group,
    ):
        follower = group.create_task(fleet.follow(kube, settings.namespace))
        await run(Gateway(fleet, upstream, settings), stop)
        follower.cancel()


async def run(gateway: Gateway, stop: asyncio.Event, server: Server | None = None) -> None:
    """Answer until `stop`, then drain."""
    server = server or server_for(gateway)
    try:
        async with asyncio.TaskGroup() as group:
            beside = [
                group.create_task(_beat(gateway)),
                group.create_task(_end_slow_clients(server, gateway.shared.settings)),
                group.create_task(_drain(gateway, server, stop)),
            ]
            await server.serve()
            for task in beside:
                task.cancel()
    finally:
        await gateway.shared.shadows.close()


async def _drain(gateway: Gateway, server: Server, stop: asyncio.Event) -> None:
    settings = gateway.shared.settings
    await stop.wait()
    logger.info("draining: %d requests are in flight", len(gateway.shared.guards))
    gateway.drain()
    await asyncio.sleep(settings.drain_delay_s)
    server.should_exit = True  # stops accepting; open connections end with their answer
    await asyncio.sleep(settings.drain_timeout_s)
    if gateway.shared.guards:
        logger.warning("cutting %d requests off", len(gateway.shared.guards))
        gateway.stop()
    await asyncio.Event().wait()


async def _beat(gateway: Gateway) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + BEAT_S
        await asyncio.sleep(BEAT_S)
        gateway.note_loop_lag(max(0.0, loop.time() - due_s))


async def _end_slow_clients(server: Server, settings: GatewaySettings) -> None:
    loop = asyncio.get_running_loop()
    shortest_s = min(settings.head_timeout_s, settings.client_stall_timeout_s)
    while True:
        await asyncio.sleep(min(SLOW_CLIENTS_S, shortest_s / 4))
        now_s = loop.time()
        for connection in list(server.server_state.connections):
            assert isinstance(connection, GatewayProtocol)
            connection.check(now_s)
