"""Interface of the store that gateways share."""

from collections.abc import Mapping, Sequence
from typing import Protocol
from urllib.parse import urlsplit

from penstock.gateway.quotas.store_call import Reply, StoreCall


class StoreFailed(Exception):
    """The store did not answer a call in time, or refused it.

    is_late: whether this process found out so late that it may have been the one that was late.
    """

    def __init__(self, problem: str, *, is_late: bool = False) -> None:
        super().__init__(problem)
        self.is_late = is_late


class Store(Protocol):
    """A store that all gateways share (`redis_store.py`)."""

    async def call(self, call: StoreCall) -> Reply:
        """Execute a call, all of it at once. Raises StoreFailed."""

    async def read(self, keys: Sequence[str]) -> list[Mapping[str, int]]:
        """Return the fields of ledger entries. Raises StoreFailed."""

    async def close(self) -> None:
        """Close the connections."""


def check_store_url(url: str) -> str:
    """Return the URL of a store. Raises ValueError, which does not repeat it: it may have a password."""
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss") or not parts.hostname:
        raise ValueError("give a URL such as redis://quotas:6379/0, or rediss://… for TLS")
    if parts.password is not None or "password" in parts.query:
        raise ValueError("the URL has a password: give it in a file (--quota-store-password-file)")
    return url
