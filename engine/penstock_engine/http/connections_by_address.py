"""Bounds the open connections of one server, and shares them between the addresses of clients."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from penstock_engine.http.fair_limit import FairLimit


class Connection(Protocol):
    """A client connection."""

    @property
    def is_answering(self) -> bool:
        """Whether the application works on a request of this connection."""

    @property
    def is_sending(self) -> bool:
        """Whether a part of an answer waits for the client to read."""

    def abort(self) -> None:
        """Reset the connection."""


class ConnectionsByAddress:
    """The open connections of one server, whose client addresses share a limit on them.

    An address may hold half of the connections that the others leave. A further one of it replaces its
    oldest idle one, which neither waits for an answer nor has one to read. When all are taken, one of an
    address that has none replaces one of the address that has most, among those with a replaceable one, so
    that kubelet's probes are answered: an idle one, or if there is none, one whose client has not read its
    answer.
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
        """Reset a connection, and let the address hold its place. Returns False if none may be replaced."""
        found = self._find_replaceable(address)
        if found is None:
            return False
        holder, replaced = found
        self._forget(replaced, holder)
        self._limit.move(1, holder, address)
        replaced.abort()
        return True

    def _find_replaceable(self, address: str) -> tuple[str, Connection] | None:
        """Find the connection that a new one of the address replaces, and who holds it."""
        is_new = address not in self._by_address
        holders = [address]
        if is_new:
            holders = sorted(self._by_address, key=self._limit.held_by, reverse=True)
        idle = (found for found in self._without_open_request(holders) if not found[1].is_sending)
        found = next(idle, None)
        if found is None and is_new:
            found = next(self._without_open_request(holders), None)
        return found

    def _without_open_request(self, holders: Iterable[str]) -> Iterator[tuple[str, Connection]]:
        """Connections on whose requests the application does not work, with their holders."""
        for holder in holders:
            for each in self._by_address[holder]:
                if not each.is_answering:
                    yield holder, each

    def _forget(self, connection: Connection, address: str) -> None:
        del self._by_address[address][connection]
        if not self._by_address[address]:
            del self._by_address[address]
