"""Allocation of client connections, and of memory for bodies, to requests.

When there is no room for a new request, one that is still arriving is given up: the oldest of the client that
holds most of the limit. A client that sends quickly has no old ones.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.gateway.client_network import client_network
from penstock.gateway.openai import RETRY_AFTER_S, RequestError
from penstock.gateway.shared_limit import ARRIVING, Allocation, SharedLimit


class RequestLimits:
    """The limits that the requests of one gateway share.

    arriving: requests whose body is incomplete, oldest first, with what stops the reading of it.
    """

    def __init__(self, max_connections: int, max_body_bytes: int) -> None:
        self.connections = SharedLimit(max_connections)
        self.body_bytes = SharedLimit(max_body_bytes)
        self.arriving: dict[RequestAllocation, Callable[[], None]] = {}

    def find_oldest_of_largest_client(self, limit: SharedLimit) -> "RequestAllocation | None":
        """Return the oldest arriving request that holds some of the limit, of the client that holds most."""
        by_client: Counter[str] = Counter()
        for each in self.arriving:
            by_client[each.client] += each.held(limit)
        most = max(by_client.values(), default=0)
        of_client = (each for each in self.arriving if by_client[each.client] == most)
        return next((each for each in of_client if each.held(limit)), None)


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
        self._limits.arriving[self] = stop_reading
        try:
            yield
        finally:
            self._limits.arriving.pop(self, None)

    def grow(self, num_bytes: int) -> None:
        """Hold memory for more bytes of the body. Raises RequestError; TimeoutError if it was given up."""
        if self.is_given_up:  # the task that reads has not been told yet
            raise TimeoutError
        if not self._take(self._limits.body_bytes, num_bytes):
            message = (
                "the requests in this gateway hold too much memory: try again later, with less"
            )
            raise _without_memory(message)

    def assign(self, service: str) -> None:
        """Count the request for its service "namespace/name" from now on. Raises RequestError."""
        if not self._connection.assign(service):
            message = "too many requests for this model or its namespace are open: try again later"
            raise _without_connection(message)
        if not self._body.assign(service):
            message = (
                "the waiting requests for this model or its namespace hold too much memory: "
                "try again later"
            )
            raise _without_memory(message)

    def release_body(self) -> None:
        """Give the memory of the body back. Further calls change nothing."""
        self._body.release()

    def release(self) -> None:
        """Give all back. Further calls change nothing."""
        self._connection.release()
        self._body.release()

    def _take(self, limit: SharedLimit, amount: int) -> bool:
        """Hold more of a limit, for which other arriving requests may be given up."""
        allocation = self._by_limit[limit]
        while not allocation.take(amount):
            oldest = self._limits.find_oldest_of_largest_client(limit)
            would_fit_alone = allocation.amount + amount <= limit.bound(ARRIVING)
            if oldest is None or oldest is self or not would_fit_alone:
                return False
            oldest._give_up()
        return True

    def _give_up(self) -> None:
        self.is_given_up = True
        self.release()
        stop_reading = self._limits.arriving.pop(self)
        stop_reading()


def _without_connection(message: str) -> RequestError:
    return RequestError(503, message, retry_after_s=RETRY_AFTER_S, reason="connections")


def _without_memory(message: str) -> RequestError:
    return RequestError(503, message, retry_after_s=RETRY_AFTER_S, reason="memory")
