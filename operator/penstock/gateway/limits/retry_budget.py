"""Limits the retries of each service, so that a broken service gets no retry storm."""

from contextlib import AbstractContextManager

from penstock.gateway.limits.keyed_count import KeyedCount


class RetryBudget:
    """Bounds how many open requests of a service may be retries at the same time.

    ratio: fraction of the service's open requests. minimum: number that is allowed in any case, at least 1.
    Raises ValueError.
    """

    def __init__(self, ratio: float, minimum: int) -> None:
        if minimum < 1:  # a failed request would wait for a retry that is never allowed
            raise ValueError("minimum: must be 1 or more")
        self._ratio = ratio
        self._minimum = minimum
        self._retrying = KeyedCount()

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
