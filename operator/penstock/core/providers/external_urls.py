"""URLs of external models: prefixes that an administrator allows, and addresses that are forbidden."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

URL_PATTERN = r"^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*/?$"
DEFAULT_PORTS = {"http": 80, "https": 443}
# Addresses that are not link-local, at which clouds serve the credentials of machines: Alibaba, Azure,
# Oracle, AWS and Google.
METADATA = frozenset(
    ip_address(text)
    for text in (
        "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254",
    )
)  # fmt: skip
NAT64 = IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class ExternalUrl:
    """The beginning of URLs: scheme, host in lower case, port, and folders of the path."""

    scheme: str
    host: str
    port: int
    parts: tuple[str, ...]

    def covers(self, other: "ExternalUrl") -> bool:
        """Whether another URL begins with this one, on the boundary of a folder."""
        return (self.scheme, self.host, self.port) == (
            other.scheme,
            other.host,
            other.port,
        ) and other.parts[: len(self.parts)] == self.parts


def parse_external_url(text: str) -> ExternalUrl:
    """Parse a URL without user, query, fragment and escapes. Raises ValueError with a sentence."""
    problem = (
        f"{text!r} has to be a URL such as https://api.example.com or https://HOST:PORT/FOLDER"
    )
    if not re.fullmatch(URL_PATTERN.removesuffix("$"), text, re.ASCII):
        raise ValueError(f"{problem}, without a user, a query or %-escapes")
    try:
        found = urlsplit(text)
        host, port = found.hostname, found.port
    except ValueError:
        raise ValueError(problem) from None
    parts = tuple(part for part in found.path.split("/") if part)
    if not host or port == 0 or any(part in (".", "..") for part in parts):
        raise ValueError(problem)
    return ExternalUrl(
        found.scheme, host.lower().rstrip("."), port or DEFAULT_PORTS[found.scheme], parts
    )


def is_allowed_url(text: str, prefixes: Sequence[ExternalUrl]) -> bool:
    """Whether a URL begins with one of the prefixes."""
    try:
        url = parse_external_url(text)
    except ValueError:
        return False
    return any(prefix.covers(url) for prefix in prefixes)


def is_forbidden_address(text: str) -> bool:
    """Whether no external model is at an IP address: that of a machine's credentials, or of no host.

    An IPv4 address within an IPv6 one counts too.
    """
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return True
    candidates: list[IPv4Address | IPv6Address] = [address]
    if isinstance(address, IPv6Address):
        within = [address.ipv4_mapped, address.sixtofour]
        if address in NAT64:
            within.append(IPv4Address(int(address) & 0xFFFFFFFF))
        candidates += [each for each in within if each is not None]
    return any(
        each.is_link_local or each.is_multicast or each.is_unspecified or each in METADATA
        for each in candidates
    )
