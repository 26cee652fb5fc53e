"""The gateway's HTTP servers: one for clients, and one for probes, metrics and the operator.

The second has a port and connections of its own, so that clients who use up theirs take nothing from
probes and the operator.
"""

import socket
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from penstock.gateway.http.certificate import ServedCertificate
from penstock.gateway.http.protocol import GatewayProtocol
from penstock.gateway.http.tls_handshake import TlsHandshake
from penstock.gateway.limits.connection_limit import ConnectionLimit
from penstock.gateway.settings import GatewaySettings
from penstock_engine.http.loopback import add_loopback_listener
from penstock_engine.http.signals import SignalFreeServer

# Time for the error events of streams that are cut off at the end of the drain.
LAST_EVENTS_S = 6
# Bound on the connections of the management server. Kubelet, operator and Prometheus have a few each; at
# the bound a new one replaces the oldest one that has no request or does not read, so that a probe gets in.
MAX_MANAGEMENT_CONNECTIONS = 64
# Time for the management server to end a response to a scrape after the clients' server has ended.
LAST_SCRAPE_S = 1


class Server(SignalFreeServer):
    """A server of the gateway. It leaves signals to `serve`, in which they start a drain."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            await add_loopback_listener(self)

    @property
    def port(self) -> int:
        """The port that it listens on, which is a free one if the settings have 0."""
        port: int = self.servers[0].sockets[0].getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class HttpServers:
    """The servers of one gateway. certificate: of the server for clients; None: without TLS."""

    clients: Server
    management: Server
    certificate: ServedCertificate | None = None

    def connections(self) -> list[GatewayProtocol]:
        """Return the open connections of both, without those in a TLS handshake."""
        both = (self.clients, self.management)
        return [
            each
            for server in both
            for each in server.server_state.connections
            if isinstance(each, GatewayProtocol)
        ]


def http_servers(
    app: ASGIApp,
    management_app: ASGIApp,
    settings: GatewaySettings,
    certificate: ServedCertificate | None = None,
) -> HttpServers:
    """Make the HTTP servers of a gateway's applications. They do not listen yet."""
    return HttpServers(
        clients=_server(
            app,
            settings,
            settings.port,
            limit=ConnectionLimit(settings.max_connections),
            shutdown_s=int(settings.drain_timeout_s) + LAST_EVENTS_S,
            certificate=certificate,
        ),
        management=_server(
            management_app,
            settings,
            settings.management_port,
            limit=ConnectionLimit(MAX_MANAGEMENT_CONNECTIONS),
            shutdown_s=LAST_SCRAPE_S,
        ),
        certificate=certificate,
    )


def _server(
    app: ASGIApp,
    settings: GatewaySettings,
    port: int,
    *,
    limit: ConnectionLimit,
    shutdown_s: int,
    certificate: ServedCertificate | None = None,
) -> Server:
    protocol: Any = partial(GatewayProtocol, settings=settings, limit=limit)
    if certificate is not None:
        protocol = partial(TlsHandshake, settings=settings, limit=limit, certificate=certificate)
    return Server(
        uvicorn.Config(
            app,
            host=settings.host,
            port=port,
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,  # longer than the idle time of most clients and load balancers
            timeout_graceful_shutdown=shutdown_s,
            backlog=4096,
        )
    )
