"""The hold of one request whose service is at zero, until the service has its first engine."""

import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Protocol

from penstock.core.routing.hold import retry_after_s
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.selection.model_routing import check_available
from penstock.gateway.snapshots.snapshot import Service
from penstock.gateway.state.gateway_state import GatewayState


class Selection(Protocol):
    """The selection of endpoints for a request."""

    def current_service(self) -> Service:
        """The service whose engines are to answer. Raises RequestError if it was deleted."""
        ...

    async def wait_for_change(self, timeout_s: float) -> bool:
        """Wait for a change of the service. Returns False if there is none in the time."""
        ...

    def waiting(self, retry_after_s: int) -> AbstractContextManager[None]:
        """Count the request as waiting while the block runs. Raises RequestError if too many wait."""
        ...


class RequestHold:
    """Time that one request may wait for the first engine of a service at zero.

    client_limit_s: what its client is willing to wait; None: it has not said so. send_comment: keeps the
    stream of its client alive; None: the request is no stream.
    """

    def __init__(
        self,
        state: GatewayState,
        client_limit_s: float | None = None,
        send_comment: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._state = state
        limit_s = state.settings.hold_s
        self._limit_s = limit_s if client_limit_s is None else min(client_limit_s, limit_s)
        self._send_comment = send_comment
        self._held_s = 0.0

    async def until_engine(self, selection: Selection) -> None:
        """Wait until the service has an engine, or is none that a request wakes. Raises RequestError."""
        since_s = self._state.now() - self._held_s
        with selection.waiting(self.retry_after_s(selection.current_service())):
            await self._until_engine(since_s, selection)

    async def _until_engine(self, since_s: float, selection: Selection) -> None:
        interval_s = self._state.settings.hold_comment_interval_s
        comment_s = self._state.now() + interval_s if self._send_comment else math.inf
        while (service := selection.current_service()).is_to_wake:
            check_available(service)
            now = self._state.now()
            self._held_s = now - since_s
            if self._held_s >= self._limit_s:
                raise self._over(service)
            if self._send_comment is not None and now >= comment_s:
                await self._send_comment()
                comment_s = now + interval_s
            await selection.wait_for_change(min(self._limit_s - self._held_s, comment_s - now))

    def retry_after_s(self, service: Service) -> int:
        """The `Retry-After` of a request that is not held any longer."""
        return retry_after_s(service.wakes_in_s or 0.0, self._held_s)

    def _over(self, service: Service) -> RequestError:
        message = (
            f"the InferenceService {service.key} had no engine, and one is starting: send the request again "
            "later"
        )
        return RequestError(
            503, message, code="scaled_to_zero", retry_after_s=self.retry_after_s(service)
        )
