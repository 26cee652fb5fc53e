"""Listens on a pod's loopback address too, to which `kubectl port-forward` connects."""

import asyncio
import ipaddress
import logging
from collections.abc import Callable
from typing import Any

import uvicorn

logger = logging.getLogger(__name__)


def loopback_beside(host: str) -> str | None:
    """Returns the loopback address beside a pod's address; None if `host` includes it, or is a name.

    The pods of `penstock local up` share the loopback network, and each has an address of it to itself.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.is_loopback or address.is_unspecified:
        return None
    return "127.0.0.1" if address.version == 4 else "::1"


async def listen_on_loopback(
    protocol: Callable[[], asyncio.Protocol], host: str, beside: asyncio.Server, **options: Any
) -> list[asyncio.Server]:
    """Listens at the port of a server on the loopback address beside its host, if there is one.

    options: of create_server. An address that is taken, as it may be in the network of a node, is left out
    with a warning.
    """
    loopback = loopback_beside(host)
    if loopback is None:
        return []
    port = beside.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    try:
        return [await loop.create_server(protocol, loopback, port, **options)]
    except OSError as error:
        logger.warning("kubectl port-forward cannot reach port %d: %s", port, error)
        return []


async def add_loopback_listener(server: uvicorn.Server) -> None:
    """Lets a uvicorn server that has started listen on the loopback address beside its host."""
    config = server.config

    def protocol() -> asyncio.Protocol:
        return config.http_protocol_class(  # type: ignore[call-arg]
            config=config, server_state=server.server_state, app_state=server.lifespan.state
        )

    server.servers += await listen_on_loopback(
        protocol, config.host, server.servers[0], ssl=config.ssl, backlog=config.backlog
    )
