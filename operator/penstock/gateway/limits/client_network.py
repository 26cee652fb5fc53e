"""Which addresses count as one client."""

import ipaddress
from functools import lru_cache

# A site with IPv6 has at least this network for itself, and may use all addresses in it (RFC 6177).
IPV6_PREFIX_BITS = 64


# Parsing takes 10 us, and each request asks.
@lru_cache(maxsize=4096)
def client_network(address: str) -> str:
    """Return the network that counts as one client: the /64 of an IPv6 address, else the address itself.

    An IPv4 address may have the form that it has on a socket for both versions, `::ffff:10.0.0.1`.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:  # empty: a socket that is a file
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), IPV6_PREFIX_BITS), strict=False))
