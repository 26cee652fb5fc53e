"""Selects the engine that has stored the response which a request continues."""

from collections.abc import Sequence
from typing import Any

from penstock.core.routing.charge import Ending
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.selection.endpoint_selection import EndpointSelector, SelectedEndpoint
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.state.response_owners import ResponseOwner


class OwnerSelector(EndpointSelector):
    """Selects the endpoint that has the response which a request continues, and no other one.

    Other engines could not answer. So there is one attempt, which waits in no admission queue.
    """

    def __init__(self, owner: ResponseOwner, *arguments: Any, **named: Any) -> None:
        """Arguments after the owner are those of an EndpointSelector."""
        super().__init__(*arguments, **named)
        self._owner = owner

    async def next(self, failures: Sequence[Ending]) -> SelectedEndpoint:
        """Select the endpoint. Raises RequestError, also after a failed attempt."""
        if failures:
            message = "the engine that has the previous response did not answer"
            raise RequestError(503, message, retry_after_s=RETRY_AFTER_S, reason="engines_failed")
        while True:
            service = self.current_service()
            endpoint = self._owner.endpoint(service)
            if self._copies is None or await self._copies.find(
                service, (endpoint,), self._wait.left_s
            ):
                return self._place((endpoint,), 0.0)

    def change_version(self) -> Adapter | None:
        """Keep the adapter's version: there is no further attempt."""
        return None
