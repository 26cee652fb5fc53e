"""The engine's HTTP server: it listens, drains on a signal, and closes."""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
from functools import partial

import uvicorn

from penstock_engine.http.connections_by_address import ConnectionsByAddress
from penstock_engine.http.loopback import add_loopback_listener
from penstock_engine.http.open_files import allow_open_files
from penstock_engine.http.protocol import IDLE_CONNECTION_S, BoundedProtocol
from penstock_engine.http.signals import SignalFreeServer
from penstock_engine.server.app import build_app
from penstock_engine.server.async_engine import now_s
from penstock_engine.server.handlers.state import ServerState
from penstock_engine.server.startup import StartupTimer

logger = logging.getLogger(__name__)

# Bound on open connections: two gateways with --max-connections (4096) each, and each of them may hold a
# third if both are full.
MAX_CONNECTIONS = 16_384
# Open files that are left for the weights, the worker processes and libraries.
OTHER_FILES = 256
# Seconds without reading its answer after which a client is disconnected. A gateway reads in bursts for a
# client that reads slowly, and disconnects a client that does not read in 60 s itself.
CLIENT_STALL_TIMEOUT_S = 300.0
DRAIN_POLL_S = 0.05
# Time after the drain to send the last bytes to slow clients.
CLOSE_TIMEOUT_S = 5


class Server(SignalFreeServer):
    """The engine's server, with a callback once it listens."""

    def __init__(self, config: uvicorn.Config, on_listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.started:
            return
        if self.config.uds is None:
            await add_loopback_listener(self)
        self._on_listening()


async def listen(state: ServerState, startup_timer: StartupTimer) -> None:
    """Serves until SIGTERM or SIGINT and the end of the drain."""
    options = state.options

    def on_listening() -> None:
        startup_timer.end_phase("listen")
        state.metrics.set_startup(startup_timer.phases_s)
        logger.info("ready in %s", startup_timer)

    server = Server(
        uvicorn.Config(
            build_app(state),
            host=options.host,
            port=options.port,
            uds=None if options.uds is None else str(options.uds),
            ssl_keyfile=options.ssl_keyfile,
            ssl_certfile=options.ssl_certfile,
            ssl_ca_certs=options.ssl_ca_certs,
            ssl_cert_reqs=options.ssl_cert_reqs,
            log_config=None,  # its records go to the root logger
            log_level=options.uvicorn_log_level,
            access_log=False,
            # On h11: httptools does not limit the size of headers.
            http=partial(  # type: ignore[arg-type]
                BoundedProtocol,
                limit=_connection_limit(),
                client_stall_timeout_s=CLIENT_STALL_TIMEOUT_S,
            ),
            ws="none",
            lifespan="off",
            timeout_graceful_shutdown=CLOSE_TIMEOUT_S,
            timeout_keep_alive=IDLE_CONNECTION_S,
            server_header=False,
        ),
        on_listening,
    )
    draining = asyncio.create_task(_drain_on_signal(server, state, options.shutdown_timeout_s))
    try:
        await server.serve()
    finally:
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)


def _connection_limit() -> ConnectionsByAddress:
    """Returns a bound on connections that the process' limit of open files allows."""
    num_files = allow_open_files(OTHER_FILES + MAX_CONNECTIONS)
    return ConnectionsByAddress(max(1, num_files - OTHER_FILES))


async def _drain_on_signal(server: Server, state: ServerState, timeout_s: float) -> None:
    """Drains on the first signal: rejects new requests and finishes running ones. Ends on the second."""
    signaled = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signaled.set)
    await signaled.wait()
    signaled.clear()
    state.drain()
    logger.info("draining %d requests", state.in_flight)
    deadline_s = now_s() + timeout_s
    while (  # noqa: ASYNC110 - three conditions, one of them a time
        state.in_flight and now_s() < deadline_s and not signaled.is_set()
    ):
        await asyncio.sleep(DRAIN_POLL_S)
    if state.in_flight:
        logger.warning("%d requests are cut off", state.in_flight)
        await state.engine.close()  # running requests get an error before the server exits
    server.should_exit = True
