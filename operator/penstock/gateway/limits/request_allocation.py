"""Allocation of client connections, and of memory for bodies, to requests.

When there is no room, requests that still arrive are given up, of the client that holds most: the oldest that
alone holds enough, else its largest ones. A client that sends quickly has no old ones.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.limits.arriving_requests import ArrivingRequests
from penstock.gateway.limits.client_network import client_network
from penstock.gateway.limits.shared_limit import ARRIVING, Allocation, SharedLimit

# Bound on what arriving requests give up for another one, as a multiple of what that one needs. They may hold
# far more than their share after services have lowered it. With a multiple of 1 they would stay above it, and
# without a bound one byte could displace half of them.
MAX_FREED = 2


class RequestLimits:
    """The limits that the requests of one gateway share, and those requests whose body is incomplete."""

    def __init__(self, max_connections: int, max_body_bytes: int) -> None:
        self.connections = SharedLimit(max_connections)
        self.body_bytes = SharedLimit(max_body_bytes)
        self.arriving = ArrivingRequests(self.connections, self.body_bytes)


class RequestAllocation:
    """The connection and the memory that one request holds until `release`. client: its address."""

    def __init__(self, limits: RequestLimits, client: str) -> None:
        self.client = client_network(client)
        self.is_given_up = False
        self._limits = limits
        self._connection = Allocation(limits.connections, ARRIVING)
        self._body = Allocation(limits.body_bytes, ARRIVING)
        self._by_limit = {limits.connections: self._connection, limits.body_bytes: self._body}

    def held(self, limit: SharedLimit) -> int:
        """Return what the request holds of one of the limits."""
        return self._by_limit[limit].amount

    @contextmanager
    def arriving(self, stop_reading: Callable[[], None]) -> Iterator[None]:
        """Hold a connection. While the block reads the body, the request may be given up for another one.

        stop_reading: called then. Raises RequestError.
        """
        if not self._take(self._limits.connections, 1):
            raise _without_connection("too many requests are arriving: try again later")
        self._stop_reading = stop_reading
        self._limits.arriving.add(self)
        try:
            yield
        finally:
            self._limits.arriving.remove(self)

    def hold_connection(self, owner: str) -> None:
        """Hold a connection for an owner that is known before the body. Raises RequestError."""
        self._connection.add(1)
        self.assign(owner)

    def grow(self, num_bytes: int) -> None:
        """Hold memory for more bytes of the body. Raises RequestError; TimeoutError if it was given up."""
        if self.is_given_up:  # the task that reads has not been told yet
            raise TimeoutError
        if not self._take(self._limits.body_bytes, num_bytes):
            message = (
                "the requests in this gateway hold too much memory: try again later, with less"
            )
            raise _without_memory(message)
        self._limits.arriving.note_growth(self, self._limits.body_bytes, num_bytes)

    def assign(self, service: str, retry_after_s: int = RETRY_AFTER_S) -> None:
        """Count the request for its service "namespace/name" from now on.

        retry_after_s: if the service has no room for it. Raises RequestError.
        """
        if not self._connection.assign(service):
            message = "too many requests for this model or its namespace are open: try again later"
            raise _without_connection(message, retry_after_s)
        if not self._body.assign(service):
            message = (
                "the waiting requests for this model or its namespace hold too much memory: "
                "try again later"
            )
            raise _without_memory(message, retry_after_s)

    def release_body(self) -> None:
        """Give the memory of the body back. Further calls change nothing."""
        self._body.release()

    def release(self) -> None:
        """Give all back. Further calls change nothing."""
        self._connection.release()
        self._body.release()

    def give_up(self) -> None:
        """Give all back, and stop the reading of the body."""
        self.is_given_up = True
        self._limits.arriving.remove(self)
        self.release()
        self._stop_reading()

    def _take(self, limit: SharedLimit, amount: int) -> bool:
        """Hold more of a limit, for which other arriving requests may be given up."""
        allocation = self._by_limit[limit]
        short = min(limit.shortage(ARRIVING, amount), MAX_FREED * amount)
        if short and allocation.amount + amount > limit.bound(ARRIVING):  # not even alone
            return False
        while short > 0:
            chosen = self._limits.arriving.choose(limit, short)
            if not chosen or self in chosen:
                return False
            for each in chosen:
                short -= each.held(limit)
                each.give_up()
        allocation.add(amount)
        return True


def _without_connection(message: str, retry_after_s: int = RETRY_AFTER_S) -> RequestError:
    return RequestError(503, message, retry_after_s=retry_after_s, reason="connections")


def _without_memory(message: str, retry_after_s: int = RETRY_AFTER_S) -> RequestError:
    return RequestError(503, message, retry_after_s=retry_after_s, reason="memory")
