"""Unexpected errors in the operator's loops: logged and counted, and the loop goes on."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter

logger = logging.getLogger(__name__)


class Failures:
    """Keeps an error in the work on one service from ending the process or stopping the others."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._count = Counter(
            "penstock_operator_unexpected_errors",
            "Errors that a loop of the operator did not expect; it went on with the next service.",
            ["loop"],
            registry=registry,
        )

    @contextmanager
    def contained(self, loop: str, subject: str = "") -> Iterator[None]:
        """Log and count an error of the block instead of raising it. subject: service or namespace."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the other services go on
            self.report(loop, subject, error)

    def report(self, loop: str, subject: str, error: Exception) -> None:
        """Log and count an error."""
        self._count.labels(loop).inc()
        logger.error("unexpected error in the %s loop: %s", loop, subject, exc_info=error)
