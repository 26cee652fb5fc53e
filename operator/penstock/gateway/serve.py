"""The gateway process: connect, listen, drain."""

import asyncio
import logging
import signal

import uvicorn

from penstock.adapters.clock import monotonic
from penstock.adapters.kube import connect
from penstock.gateway.app import Gateway, build_app
from penstock.gateway.director import Director
from penstock.gateway.fleet import Fleet
from penstock.gateway.relay import Relay
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.telemetry import Telemetry
from penstock.gateway.upstream import Upstream

logger = logging.getLogger(__name__)

MAX_HEADER_BYTES = 65_536
POLL_S = 0.05
# Longer than clients keep idle connections (aiohttp 15 s), so that none is closed as it is used.
KEEP_ALIVE_S = 75


async def serve(settings: GatewaySettings) -> None:
    """Until SIGTERM or SIGINT, and the end of the drain."""
    telemetry = Telemetry()
    upstream = Upstream(settings)
    async with await connect(user_agent="penstock-gateway") as kube:
        fleet = Fleet(kube, settings.namespace)
        director = Director(fleet, upstream, settings, telemetry)
        gateway = Gateway(fleet, Relay(fleet, director, settings, telemetry), telemetry)
        server = uvicorn.Server(
            uvicorn.Config(
                build_app(gateway),
                host=settings.host,
                port=settings.port,
                log_level="warning",
                access_log=False,
                http="h11",  # the one with the header cap
                h11_max_incomplete_event_size=MAX_HEADER_BYTES,
                timeout_graceful_shutdown=5,
                lifespan="off",
                backlog=4096,
                timeout_keep_alive=KEEP_ALIVE_S,
            )
        )
        following = asyncio.create_task(fleet.run())
        draining = asyncio.create_task(_drain_on_signal(server, gateway, settings))
        try:
            await server._serve()  # not `serve`: that would take the signals of the drain
        finally:
            following.cancel()
            draining.cancel()
            await asyncio.gather(following, draining, return_exceptions=True)
            await upstream.close()


async def _drain_on_signal(
    server: uvicorn.Server, gateway: Gateway, settings: GatewaySettings
) -> None:
    """Unready, serve what still arrives, finish, end what is left with an error event."""
    signalled = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, signalled.set)
    await signalled.wait()
    logger.info("draining %d requests", gateway.relay.in_flight)
    gateway.draining = True
    await asyncio.sleep(settings.drain_delay_s)
    for listener in server.servers:
        listener.close()
    deadline_s = monotonic() + settings.drain_timeout_s
    await _until_idle(gateway, deadline_s)
    gateway.relay.closing.set()
    await _until_idle(gateway, monotonic() + 1)
    server.should_exit = True


async def _until_idle(gateway: Gateway, deadline_s: float) -> None:
    while gateway.relay.in_flight and monotonic() < deadline_s:  # noqa: ASYNC110 - a drain may poll
        await asyncio.sleep(POLL_S)
