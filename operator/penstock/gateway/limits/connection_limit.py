"""Bounds the open connections of one server, and chooses which of them a new one replaces."""

from enum import Enum
from typing import Protocol


class Connection(Protocol):
    """A client connection."""

    def abort(self) -> None:
        """Reset the connection."""


class Replaceable(Enum):
    """Why a new connection may replace another one, in the order in which they are replaced."""

    LINGERING = "lingering"  # half-closed, with the whole response sent
    UNREAD = "unread"  # its client does not read a response that counts for no service
    IDLE = "idle"  # without a request


class ConnectionLimit:
    """The open connections of one server, and those that a new one may replace at `max_connections`.

    Of those that are replaceable for the same reason the oldest is replaced first.
    """

    def __init__(self, max_connections: int) -> None:
        self._max_connections = max_connections
        self._open: set[Connection] = set()
        # Connections by reason, the oldest first; the inner values are unused.
        self._replaceable: dict[Replaceable, dict[Connection, None]] = {
            reason: {} for reason in Replaceable
        }

    def add(self, connection: Connection) -> bool:
        """Count a new connection, and reset others to make room for it.

        Returns False if no other may be reset; the new one is counted until `remove` all the same.
        """
        self._open.add(connection)
        while len(self._open) > self._max_connections:
            replaced = next((each for group in self._replaceable.values() for each in group), None)
            if replaced is None:
                return False
            self.remove(replaced)
            replaced.abort()
        return True

    def remove(self, connection: Connection) -> None:
        """Stop counting a connection. Further calls change nothing."""
        self._open.discard(connection)
        for group in self._replaceable.values():
            group.pop(connection, None)

    def mark(self, connection: Connection, reason: Replaceable, *, applies: bool = True) -> None:
        """Note whether a reason to replace a connection applies to it.

        One that is not counted stays so: its request may end after the connection was lost.
        """
        group = self._replaceable[reason]
        if not applies:
            group.pop(connection, None)
        elif connection in self._open:
            group.setdefault(connection)
