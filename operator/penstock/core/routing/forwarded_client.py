"""The address of the client of a request, which trusted proxies name in X-Forwarded-For."""

import ipaddress
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

FORWARDED_FOR = b"x-forwarded-for"
# Bound on the proxies before one client, each of which adds an address. Real chains have up to four, and
# without a bound a header of 32 KiB would be parsed to its end.
MAX_PROXIES = 16
# Length of the longest address with brackets and a port.
MAX_ADDRESS_BYTES = 60
# An address that is followed by a port: of IPv6 in brackets, which may lack the port.
WITH_PORT = re.compile(rb"\[([^\]]*)\](?::[0-9]{1,5})?|([0-9.]+):[0-9]{1,5}")


def parse_trusted_proxy(text: str) -> Network:
    """Read a network or an address whose clients are trusted proxies. Raises ValueError with advice."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(
            f"{text!r} is no network; write an address with a prefix, such as 10.0.0.0/8"
        ) from None
    if not network.prefixlen:
        raise ValueError(f"{text} would trust every client; name the addresses of the proxies")
    if "/" in text and ipaddress.ip_interface(text).ip != network.network_address:
        raise ValueError(f"{text} is an address within a network; write {network} for all of it")
    return network


def forwarded_client(
    peer: str, headers: Iterable[tuple[bytes, bytes]], trusted: tuple[Network, ...]
) -> str:
    """Return the address of the client of a request.

    It is the peer of the connection, empty if unknown. If that is a trusted proxy, it is the last address in
    X-Forwarded-For that is not one: a trusted proxy has added it, and what is before it may be forged. If
    what a proxy has added is no address, it is the address of that proxy.
    headers: with lower-case names.
    """
    if not is_trusted_proxy(peer, trusted):
        return peer
    found = peer
    for _, text in zip(range(MAX_PROXIES), _from_last(headers), strict=False):
        address = _parse(text)
        if address is None:
            break
        found = str(address)
        if not _is_trusted(address, trusted):
            break
    return found


def is_trusted_proxy(peer: str, trusted: tuple[Network, ...]) -> bool:
    """Whether the peer of a connection is a trusted proxy."""
    return bool(trusted) and _is_trusted(_parse(peer.encode()), trusted)


def _from_last(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """Yield the entries of all X-Forwarded-For headers, the last one first."""
    for value in reversed([value for name, value in headers if name == FORWARDED_FOR]):
        rest, comma = value, b","
        while comma:
            rest, comma, last = rest.rpartition(b",")
            if text := last.strip():
                yield text


@lru_cache(maxsize=4096)  # parsing takes 10 us
def _parse(text: bytes) -> Address | None:
    """Read an address, which may have a port. None: it is something else."""
    if len(text) > MAX_ADDRESS_BYTES:
        return None
    if found := WITH_PORT.fullmatch(text):
        text = found[2] if found[1] is None else found[1]
    try:
        address = ipaddress.ip_address(text.decode("latin-1"))
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        # The zone is left out, as it is no part of the address.
        return address.ipv4_mapped or ipaddress.IPv6Address(int(address))
    return address


@lru_cache(maxsize=4096)
def _is_trusted(address: Address | None, trusted: tuple[Network, ...]) -> bool:
    return address is not None and any(address in network for network in trusted)
