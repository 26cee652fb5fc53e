"""Bounds the memory that the bodies of all requests hold together."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from penstock.gateway.arriving_bodies import ArrivingBodies, ArrivingBody
from penstock.gateway.openai import RETRY_AFTER_S, RequestError
from penstock.gateway.shares import ARRIVING_SHARE, SERVICE_SHARE, share


class BodyMemory:
    """Counts the bytes of all bodies in memory, in total and by service.

    max_arriving: bound on the bodies that are incomplete at a time.
    """

    def __init__(self, limit_bytes: int, max_arriving: int) -> None:
        self._limit_bytes = limit_bytes
        self.arriving = ArrivingBodies(max_arriving, share(limit_bytes, ARRIVING_SHARE))
        self._by_service: dict[str, int] = {}
        self.held_bytes = 0

    def has_room(self, num_bytes: int) -> bool:
        """Whether this many more bytes fit below the limit."""
        return self.held_bytes + num_bytes <= self._limit_bytes

    def add(self, num_bytes: int) -> None:
        """Count bytes of a body. Raises RequestError at the limit."""
        if not self.has_room(num_bytes):
            message = (
                "the requests in this gateway hold too much memory: try again later, with less"
            )
            raise RequestError(503, message, retry_after_s=RETRY_AFTER_S, reason="memory")
        self.held_bytes += num_bytes

    def add_to_service(self, service: str, num_bytes: int) -> None:
        """Count bytes for a service that `add` counted before. Raises RequestError at its limit."""
        held_bytes = self._by_service.get(service, 0) + num_bytes
        if held_bytes > share(self._limit_bytes, SERVICE_SHARE):
            message = "the waiting requests for this model hold too much memory: try again later"
            raise RequestError(503, message, retry_after_s=RETRY_AFTER_S, reason="memory")
        self._by_service[service] = held_bytes

    def free(self, num_bytes: int) -> None:
        """Undo `add`."""
        self.held_bytes -= num_bytes

    def free_from_service(self, service: str, num_bytes: int) -> None:
        """Undo `add_to_service`."""
        self._by_service[service] -= num_bytes
        if not self._by_service[service]:
            del self._by_service[service]


class BodyReservation:
    """Memory held by one request's body until the block ends or `release` is called."""

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self._num_bytes = 0
        self._service: str | None = None
        self._arriving: ArrivingBody | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    @contextmanager
    def arriving(self, give_up: Callable[[], None]) -> Iterator[ArrivingBody]:
        """Count the body as incomplete while the block runs. give_up: stops reading it."""
        body = self._arriving = ArrivingBody(give_up)
        self._memory.arriving.add(body)
        try:
            yield body
        finally:
            self._memory.arriving.remove(body)
            self._arriving = None

    def grow(self, num_bytes: int) -> None:
        """Reserve more bytes. Raises RequestError at the limit."""
        self._memory.add(num_bytes)
        self._num_bytes += num_bytes
        if self._arriving is not None:
            self._memory.arriving.grow(self._arriving, num_bytes)

    def assign(self, service: str) -> None:
        """Count the body for its service too. Raises RequestError at the service's limit."""
        self._memory.add_to_service(service, self._num_bytes)
        self._service = service

    def release(self) -> None:
        """Give all bytes back. Further calls change nothing."""
        self._memory.free(self._num_bytes)
        if self._service is not None:
            self._memory.free_from_service(self._service, self._num_bytes)
        self._num_bytes, self._service = 0, None
