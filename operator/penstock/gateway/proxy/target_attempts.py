"""Base of the attempts of one request at one target, which is a service's engines or an external model."""

from collections.abc import Callable

from penstock.core.routing.charge import Ending
from penstock.core.routing.pick import Endpoint
from penstock.gateway.http.client import ClientResponse
from penstock.gateway.proxy.relay import Relay
from penstock.gateway.proxy.request_telemetry import RequestTelemetry
from penstock.gateway.state.gateway_state import GatewayState


class TargetAttempts:
    """The attempts of one request at one target.

    note_response: called when there is a response, for which the request's body is not needed any more.
    tenant: name of the caller's; empty: none. endpoint: the last one that was tried; None before the first
    attempt. failures: endings of the failed attempts. relay: None before there is a response.
    """

    def __init__(
        self,
        state: GatewayState,
        client: ClientResponse,
        telemetry: RequestTelemetry,
        note_response: Callable[[], None],
        tenant: str,
    ) -> None:
        self._state = state
        self._client = client
        self._telemetry = telemetry
        self._note_response = note_response
        self._tenant = tenant
        self.endpoint: Endpoint | None = None
        self.failures: list[Ending] = []
        self.relay: Relay | None = None

    def close(self) -> None:
        """Free what the attempts hold. Default: nothing."""
