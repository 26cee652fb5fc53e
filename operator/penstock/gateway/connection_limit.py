"""Bounds the open connections of one server, and chooses which of them a new one replaces."""

from collections.abc import Iterable
from typing import Protocol


class Connection(Protocol):
    """A client connection."""

    def abort(self) -> None:
        """Reset the connection."""


class ConnectionLimit:
    """The open connections of one server, and those that a new one may replace at `max_connections`.

    They are replaced in this order, and of each kind the oldest first. lingering: half-closed, with the whole
    response sent. idle: without a request. unread: with bytes of a response that the client does not read,
    and the time of the event loop since then; at the earliest after replace_unread_s. The values of the
    other two are unused.
    """

    def __init__(self, max_connections: int, *, replace_unread_s: float) -> None:
        self._max_connections = max_connections
        self._replace_unread_s = replace_unread_s
        self._open: set[Connection] = set()
        self.lingering: dict[Connection, None] = {}
        self.idle: dict[Connection, None] = {}
        self.unread: dict[Connection, float] = {}

    def add(self, connection: Connection, now_s: float) -> bool:
        """Count a new connection, and reset others to make room for it. Returns False if none may be.

        now_s: time of the event loop.
        """
        self._open.add(connection)
        while len(self._open) > self._max_connections:
            replaced = next(iter(self._replaceable(now_s)), None)
            if replaced is None:
                return False
            self.remove(replaced)
            replaced.abort()
        return True

    def remove(self, connection: Connection) -> None:
        """Stop to count a connection. Further calls change nothing."""
        self._open.discard(connection)
        for group in (self.lingering, self.idle, self.unread):
            group.pop(connection, None)

    def _replaceable(self, now_s: float) -> Iterable[Connection]:
        yield from self.lingering
        yield from self.idle
        for connection, since_s in self.unread.items():
            if now_s - since_s < self._replace_unread_s:
                break  # the others have not been read for a shorter time
            yield connection
