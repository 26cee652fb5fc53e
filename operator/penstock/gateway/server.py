"""The gateway process: sockets, the watch of the API server, signals, and the drain."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import uvicorn

from penstock.clients.kube import connect
from penstock.gateway.app import Gateway
from penstock.gateway.http_protocol import GatewayProtocol, ServerConnections
from penstock.gateway.open_files import connections_within_limit
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshot_store import SnapshotStore
from penstock.gateway.upstream import Upstream
from penstock_engine import traces

if TYPE_CHECKING:
    from penstock.gateway.tracing import RequestTracer

logger = logging.getLogger(__name__)

# Interval at which the lag of the event loop is measured.
LAG_INTERVAL_S = 0.5
# Time for the error events of streams that are cut off at the end of the drain.
LAST_EVENTS_S = 6
# Longest interval between two checks for slow clients.
MAX_CHECK_INTERVAL_S = 1.0


class Server(uvicorn.Server):
    """A uvicorn server whose process handles the signals itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `serve`: they start a drain, and a process that has drained exits with 0."""
        yield

    @property
    def port(self) -> int:
        """The port that it listens on, which is a free one if the settings have 0."""
        port: int = self.servers[0].sockets[0].getsockname()[1]
        return port


def server_for(gateway: Gateway) -> Server:
    """Make the HTTP server of a gateway. It does not listen yet."""
    settings = gateway.state.settings
    return Server(
        uvicorn.Config(
            gateway.app,
            host=settings.host,
            port=settings.port,
            http=partial(GatewayProtocol, connections=ServerConnections(settings)),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,  # longer than the idle time of most clients and load balancers
            timeout_graceful_shutdown=int(settings.drain_timeout_s) + LAST_EVENTS_S,
            backlog=4096,
        )
    )


async def serve(settings: GatewaySettings) -> None:
    """Run a gateway until SIGTERM or SIGINT and the drain that follows.

    Raises KubeError if there are no credentials for a cluster.
    """
    max_connections = connections_within_limit(settings.max_connections)
    settings = replace(settings, max_connections=max_connections)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    snapshots = SnapshotStore()
    async with (
        await connect(user_agent="penstock-gateway") as kube,
        Upstream(settings) as upstream,
        asyncio.TaskGroup() as group,
    ):
        tracer = _tracer()
        gateway = Gateway(snapshots, upstream, settings, tracer=tracer)
        metrics = gateway.state.metrics
        metrics.observe_credentials(kube.configuration)
        follower = group.create_task(
            snapshots.follow(kube, settings.namespace, metrics.count_watch_restart)
        )
        try:
            await run(gateway, stop)
        finally:
            follower.cancel()
            if tracer is not None:
                await asyncio.to_thread(tracer.close)


def _tracer() -> "RequestTracer | None":
    if not traces.is_enabled():
        return None
    from penstock.gateway.tracing import RequestTracer  # takes a second and megabytes

    return RequestTracer()


async def run(gateway: Gateway, stop: asyncio.Event, server: Server | None = None) -> None:
    """Answer requests until `stop` is set, then drain."""
    server = server or server_for(gateway)
    connections = server.server_state.connections
    gateway.state.metrics.connections.set_function(lambda: len(connections))
    try:
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(_measure_loop_lag(gateway)),
                group.create_task(_end_slow_clients(server, gateway.state.settings)),
                group.create_task(_drain(gateway, server, stop)),
            ]
            await server.serve()
            for task in background:
                task.cancel()
    finally:
        await gateway.state.mirror.close()
        await gateway.state.adapters.close()


async def _drain(gateway: Gateway, server: Server, stop: asyncio.Event) -> None:
    settings = gateway.state.settings
    await stop.wait()
    logger.info("draining: %d requests are in flight", len(gateway.state.cancel_scopes))
    gateway.drain()
    await asyncio.sleep(settings.drain_delay_s)
    server.should_exit = True  # stops accepting; open connections end with their response
    await asyncio.sleep(settings.drain_timeout_s)
    if gateway.state.cancel_scopes:
        logger.warning("cutting off %d requests", len(gateway.state.cancel_scopes))
        gateway.cancel_requests()
    await asyncio.Event().wait()


async def _measure_loop_lag(gateway: Gateway) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + LAG_INTERVAL_S
        await asyncio.sleep(LAG_INTERVAL_S)
        gateway.note_loop_lag(max(0.0, loop.time() - due_s))


async def _end_slow_clients(server: Server, settings: GatewaySettings) -> None:
    loop = asyncio.get_running_loop()
    shortest_s = min(settings.head_timeout_s, settings.client_stall_timeout_s)
    while True:
        await asyncio.sleep(min(MAX_CHECK_INTERVAL_S, shortest_s / 4))
        now_s = loop.time()
        for connection in list(server.server_state.connections):
            assert isinstance(connection, GatewayProtocol)
            connection.check(now_s)
