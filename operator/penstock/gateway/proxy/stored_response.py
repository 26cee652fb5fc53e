"""Relays requests about a stored response to the engine that has it: read, delete, cancel, list its input."""

from collections.abc import Mapping

from penstock.core.routing.apis import RESPONSES
from penstock.core.routing.charge import CHARGES, Ending
from penstock.gateway.admission.requesters import owner_of
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.http.client import ClientResponse, checked_headers, read_body
from penstock.gateway.http.headers import Scope, client_address, headers_for_engine, path_with_query
from penstock.gateway.limits.request_allocation import RequestAllocation
from penstock.gateway.proxy.authentication import caller_of
from penstock.gateway.proxy.cancelled_request import CANCELLED_RESPONSES, error_of_cancellation
from penstock.gateway.proxy.proxied_request import first_snapshot
from penstock.gateway.proxy.request_telemetry import RequestTelemetry
from penstock.gateway.request_lifecycle.cancellation import (
    CancelCause,
    CancellationScope,
    Receive,
    RequestCancelled,
)
from penstock.gateway.request_lifecycle.timeline import RequestPhase
from penstock.gateway.state.gateway_state import GatewayState
from penstock.gateway.state.response_owners import not_found
from penstock.gateway.tenants.authorization import check_route
from penstock.gateway.upstream.response import ResponseTruncated, UpstreamResponse
from penstock.gateway.upstream.upstream import AttemptFailed, UpstreamRequest

# Bound on the body of a request, which is empty as a rule and is dropped.
MAX_BODY_BYTES = 64 << 10


class StoredResponseRequest:
    """A request about a stored response. It computes nothing, so no statistics of the service count it.

    route: the path with the name of its parameter. response_id: that parameter's value.
    """

    def __init__(
        self,
        state: GatewayState,
        route: str,
        response_id: str,
        scope: Scope,
        client: ClientResponse,
        request_id: str,
    ) -> None:
        self._state = state
        self._response_id = response_id
        self._scope = scope
        self._client = client
        self._caller = caller_of(scope)
        self._telemetry = RequestTelemetry(state, scope, request_id, route)
        self._telemetry.note_caller(self._caller)
        address = client_address(scope, state.settings.trusted_proxies)
        self._allocation = RequestAllocation(state.limits, address)
        self._response: UpstreamResponse | None = None
        self._is_cut = False

    async def run(self, receive: Receive) -> None:
        """Read the request and relay it. Raises RequestError, ClientDisconnected, RequestCancelled."""
        settings = self._state.settings
        # A body has no meaning, so its type has none: some clients send one with a body of no bytes.
        headers = [each for each in self._scope["headers"] if each[0] != b"content-type"]
        named = checked_headers(headers, limit_bytes=settings.max_header_bytes)
        check_route(self._caller, RESPONSES.path)
        await self._drop_body(receive, named)
        self._client.is_request_read = True
        self._telemetry.timeline.enter(RequestPhase.ROUTE)
        scopes = self._state.cancel_scopes
        with CancellationScope(receive, settings.total_timeout_s, scopes) as cancellation:
            cancellation.enter_phase(RequestPhase.WAIT, settings.wait_for_endpoint_s)
            try:
                response = self._response = await self._send(cancellation)
            except AttemptFailed as failed:
                await self._pass_on(failed, cancellation)
                return
            self._telemetry.timeline.enter(RequestPhase.STREAM)
            await self._relay(response, cancellation)

    async def _drop_body(self, receive: Receive, headers: Mapping[bytes, bytes]) -> None:
        await read_body(
            receive,
            headers.get(b"content-length", b""),
            self._allocation,
            limit_bytes=MAX_BODY_BYTES,
            timeout_s=self._state.settings.request_timeout_s,
        )

    async def _send(self, cancellation: CancellationScope) -> UpstreamResponse:
        """Send the request to the engine that has the response. Raises RequestError, AttemptFailed."""
        state, line = self._state, self._telemetry.line
        snapshot = await first_snapshot(state)
        owner = state.response_owners.find(snapshot, self._response_id, self._caller.name)
        service = snapshot.get(owner.service)
        if service is None:
            raise not_found(self._response_id)
        line.service = self._client.service = service.key
        self._allocation.assign(owner_of(self._caller, service.key))
        endpoint = owner.endpoint(service)
        self._telemetry.note_endpoint(endpoint, None)
        self._client.revision = endpoint.revision
        headers = headers_for_engine(
            self._scope, line.request_id, service, state.authenticator.proxies.headers
        )
        outgoing = UpstreamRequest(
            RESPONSES, path_with_query(self._scope), headers, b"",
            is_stream=False, method=self._scope["method"],
        )  # fmt: skip
        outgoing = self._telemetry.start_attempt(outgoing, endpoint)
        return await state.upstream.send(
            f"http://{endpoint.address}",
            outgoing,
            cancellation,
            self._telemetry.timeline,
            service.key,
        )

    async def _pass_on(self, failed: AttemptFailed, cancellation: CancellationScope) -> None:
        """Send the engine's own error response. Raises RequestError if there is none."""
        self._telemetry.fail_attempt(failed.ending)
        response = self._response = failed.response
        if response is None:
            message = "the engine that has the response did not answer"
            if CHARGES[failed.ending].may_client_repeat or failed.ending is Ending.CONNECT:
                retry_after_s, reason = RETRY_AFTER_S, "engines_failed"
                raise RequestError(503, message, retry_after_s=retry_after_s, reason=reason)
            raise RequestError(502, message)
        cancellation.close()
        await self._client.send(response.status, response.headers, response.first_chunk)

    async def _relay(self, response: UpstreamResponse, cancellation: CancellationScope) -> None:
        """Send the engine's response to the client, a stream of events as it arrives."""
        if response.source is None:
            cancellation.close()
            await self._client.send(response.status, response.headers, response.first_chunk)
            return
        between_s = self._state.settings.between_chunks_timeout_s
        try:
            await self._client.start(response.status, response.headers)
            chunk = response.first_chunk
            while chunk:
                cancellation.lift_phase_limit()
                await self._client.send_chunk(chunk)
                response.drop_first_chunk()
                cancellation.enter_phase(RequestPhase.STREAM, between_s)
                chunk = await response.next_chunk()
            cancellation.close()
            await self._client.finish()
        except ResponseTruncated:
            cancellation.close()
            await self._cut(502, "the engine's response was cut off")

    async def _cut(self, status: int, message: str) -> None:
        """End a response that has begun and cannot be completed; a stream with an error event."""
        self._is_cut = True
        if self._response is not None:
            await self._client.cut_stream(self._response.sse, status, message)

    async def respond_to_cancellation(self, cancelled: RequestCancelled) -> None:
        """Count the cause of a cancellation, and send the client an error if it is still there."""
        if cancelled.cause is CancelCause.CLIENT_LEFT:
            self.note_disconnect(cancelled.phase)
            return
        status, message = CANCELLED_RESPONSES[cancelled.cause]
        self._telemetry.line.reason = message
        if self._client.is_started:
            await self._cut(status, message)
            return
        await self.reject(error_of_cancellation(cancelled.cause))

    async def reject(self, error: RequestError) -> None:
        """Send an error of the gateway's own."""
        self._allocation.release()
        self._telemetry.note_rejection(error)
        await self._client.send_error(error)

    def note_disconnect(self, phase: RequestPhase) -> None:
        """Count that the client disconnected."""
        self._telemetry.note_disconnect(phase)

    def close(self) -> None:
        """Free what the request holds, and report it. Call it once, at the very end."""
        if self._response is not None:
            self._response.close()
        self._allocation.release()
        self._telemetry.close(self._client, None, is_cut=self._is_cut)
