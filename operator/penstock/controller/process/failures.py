"""Logs and counts unexpected errors in the operator's loops, so that one service stops no other."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.clients.machine.logs import fields
from penstock.controller.process.metrics import OperatorMetrics

logger = logging.getLogger(__name__)


class Failures:
    """Contains errors in the work on one service: the process and the other services go on."""

    def __init__(self, metrics: OperatorMetrics) -> None:
        self._count = metrics.unexpected_errors
        self._loop_s = metrics.loop_s

    @contextmanager
    def isolate_errors(self, loop: str, *subject: str) -> Iterator[None]:
        """Log and count an error that the block raises, and suppress it.

        subject: namespace and name of what the error is about, such as a service or a pod.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the loop goes on with the other services
            self.report(loop, "/".join(subject), error)

    @contextmanager
    def isolate_pass(self, loop: str) -> Iterator[None]:
        """Time the block, a pass of a loop over all services; log, count and suppress its error."""
        with self._loop_s.labels(loop).time(), self.isolate_errors(loop):
            yield

    def report(self, loop: str, subject: str, error: Exception) -> None:
        """Log and count an error."""
        self._count.labels(loop).inc()
        about_it = fields(service=subject or None, loop=loop)
        logger.error("unexpected error: %r", error, exc_info=error, extra=about_it)
