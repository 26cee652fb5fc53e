"""Connections to providers of external models: never to an address of a machine's credentials."""

import aiohttp

from penstock.clients.pods.connections import PodConnector
from penstock.core.providers.external_urls import is_forbidden_address


class ForbiddenAddress(OSError):
    """The host of an external model has an address that no request is sent to."""


def check_address(address: aiohttp.AddrInfoType) -> None:
    """Raise ForbiddenAddress if a name was resolved to an address that no external model is at."""
    host = str(address[4][0])
    if is_forbidden_address(host):
        raise ForbiddenAddress(f"{host} is a link-local, metadata or multicast address")


def external_connector(receive_buffer_bytes: int) -> PodConnector:
    """A pool of connections to providers. Addresses are checked after names are resolved, at each connect."""
    return PodConnector(receive_buffer_bytes, check_address=check_address)
