"""The wait of one request for an endpoint: its time limit, and who counts it."""

import contextlib
from collections.abc import Iterator

from penstock.gateway.cancellation import CancellationScope, Phase
from penstock.gateway.gateway_state import GatewayState
from penstock.gateway.openai import RETRY_AFTER_S, RequestError
from penstock.gateway.request_record import RequestRecord


class RequestWait:
    """Time that one request waits for an endpoint. left_s: seconds that it may still wait."""

    def __init__(
        self, state: GatewayState, record: RequestRecord, cancellation: CancellationScope
    ) -> None:
        self._state = state
        self._record = record
        self._cancellation = cancellation
        self.left_s = state.settings.wait_for_endpoint_s

    @contextlib.contextmanager
    def counted(self, service: str, adapter: str = "") -> Iterator[None]:
        """Count the request as waiting while the block runs, and its time against the limit.

        service: "namespace/name". adapter: the name of the one that it is for. Raises RequestError.
        """
        state = self._state
        # Requests for a slow adapter must not keep others of the service from waiting.
        key = f"{service} {adapter}" if adapter else service
        if state.waiting_requests.count(key) >= state.settings.max_waiting:
            message = "too many requests wait for an engine"
            raise RequestError(503, message, retry_after_s=RETRY_AFTER_S, reason="queue_full")
        self._cancellation.enter_phase(Phase.WAITING, state.settings.total_timeout_s)
        gauge = state.metrics.waiting.labels(service)
        began_s = state.now()
        gauge.inc()
        try:
            with state.waiting_requests.hold(key), self._record.queued():
                yield
        finally:
            gauge.dec()
            waited_s = state.now() - began_s
            self.left_s -= waited_s
        state.metrics.wait_s.labels(service).observe(waited_s)
