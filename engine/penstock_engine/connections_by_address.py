"""Bounds the open connections of one server, and shares them between the addresses of clients."""

from typing import Protocol

from penstock_engine.fair_limit import FairLimit


class Connection(Protocol):
    """A client connection."""

    @property
    def is_answering(self) -> bool:
        """Whether the application works on a request of this connection."""

    def abort(self) -> None:
        """Reset the connection."""


class ConnectionsByAddress:
    """The open connections of one server, whose client addresses share a limit on them.

    An address may hold half of the connections that the others leave. A further one of it replaces its
    oldest one without a request. When all are taken, one of an address that has none replaces one of the
    address that has most, so that kubelet's probes are answered.
    """

    def __init__(self, max_connections: int) -> None:
        self._limit = FairLimit(max_connections)
        self._by_address: dict[str, dict[Connection, None]] = {}

    def add(self, connection: Connection, address: str) -> bool:
        """Add a connection, if need be in the place of another one. Returns whether there was a place."""
        if not self._limit.take(address, 1) and not self._replace_one(address):
            return False
        self._by_address.setdefault(address, {})[connection] = None
        return True

    def remove(self, connection: Connection, address: str) -> None:
        """Remove a connection, unless that has been done."""
        if connection in self._by_address.get(address, {}):
            self._forget(connection, address)
            self._limit.give_back(address, 1)

    def _replace_one(self, address: str) -> bool:
        """Reset a connection, and let the address hold its place. Returns False if all have requests."""
        holders = [address]
        if address not in self._by_address:
            holders = sorted(self._by_address, key=self._limit.held_by, reverse=True)
        for holder in holders:
            for each in self._by_address[holder]:
                if not each.is_answering:
                    self._forget(each, holder)
                    self._limit.move(1, holder, address)
                    each.abort()
                    return True
        return False

    def _forget(self, connection: Connection, address: str) -> None:
        del self._by_address[address][connection]
        if not self._by_address[address]:
            del self._by_address[address]
