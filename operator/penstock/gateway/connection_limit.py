"""Bounds the open connections of one server, and chooses which of them a new one replaces."""

from itertools import chain
from typing import Protocol


class Connection(Protocol):
    """A client connection."""

    def abort(self) -> None:
        """Reset the connection."""


class ConnectionLimit:
    """The open connections of one server, and those that a new one may replace at `max_connections`.

    They are replaced in this order, and of each kind the oldest first; the values are unused. lingering:
    half-closed, with the whole response sent. unread: with bytes of a response that the client does not read,
    and that counts for no service. idle: without a request.
    """

    def __init__(self, max_connections: int) -> None:
        self._max_connections = max_connections
        self._open: set[Connection] = set()
        self.lingering: dict[Connection, None] = {}
        self.unread: dict[Connection, None] = {}
        self.idle: dict[Connection, None] = {}

    def add(self, connection: Connection) -> bool:
        """Count a new connection, and reset others to make room for it. Returns False if none may be."""
        self._open.add(connection)
        while len(self._open) > self._max_connections:
            replaced = next(chain(self.lingering, self.unread, self.idle), None)
            if replaced is None:
                return False
            self.remove(replaced)
            replaced.abort()
        return True

    def remove(self, connection: Connection) -> None:
        """Stop counting a connection. Further calls change nothing."""
        self._open.discard(connection)
        for group in (self.lingering, self.unread, self.idle):
            group.pop(connection, None)
