"""Limits the retries of each service, so that a broken service gets no retry storm."""

from contextlib import AbstractContextManager

from penstock.gateway.keyed_count import KeyedCount


class RetryBudget:
    """Bounds how many open requests of a service may be retries at the same time.

    ratio: fraction of the service's open requests. minimum: number that is allowed in any case.
    """

    def __init__(self, ratio: float, minimum: int) -> None:
        self._ratio = ratio
        self._minimum = minimum
        self._retrying = KeyedCount()

    @property
    def allows_retries(self) -> bool:
        """Whether there are retries at all, when no others are in flight."""
        return self._minimum > 0 or self._ratio > 0

    @property
    def in_flight(self) -> int:
        """Number of retries of all services."""
        return self._retrying.total

    def has_room(self, service: str, open_requests: int) -> bool:
        """Whether one more retry may start. open_requests: number that the service has now."""
        return self._retrying.count(service) < max(self._minimum, int(self._ratio * open_requests))

    def hold(self, service: str) -> AbstractContextManager[None]:
        """Count one retry of the service while the block runs."""
        return self._retrying.hold(service)
