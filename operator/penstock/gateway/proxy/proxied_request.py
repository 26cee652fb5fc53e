"""Proxies one request: reads it, finds its service, and responds to it.

receiving -> waiting -> first byte -> streaming
                ^            |
                '--- retry --'
"""

from collections.abc import Mapping
from functools import partial

from penstock.core.routing.apis import Api
from penstock.core.routing.charge import Ending, ending_of_timeout
from penstock.gateway.admission.requesters import owner_of, requester_of
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.apis.request import InferenceRequest, parse
from penstock.gateway.http.client import ClientResponse, checked_headers, read_body
from penstock.gateway.http.headers import (
    Scope,
    client_address,
    headers_for_engine,
    path_with_query,
    preferred_wait_s,
)
from penstock.gateway.limits.request_allocation import RequestAllocation
from penstock.gateway.proxy.attempts import Attempts
from penstock.gateway.proxy.authentication import caller_of
from penstock.gateway.proxy.request_telemetry import RequestTelemetry
from penstock.gateway.proxy.tenant_limits import admit, settle
from penstock.gateway.quotas.request_quota import RequestQuota
from penstock.gateway.request_lifecycle.cancellation import (
    CancelCause,
    CancellationScope,
    Receive,
    RequestCancelled,
)
from penstock.gateway.request_lifecycle.timeline import RequestPhase
from penstock.gateway.selection.endpoint_selection import EndpointSelector
from penstock.gateway.selection.model_routing import RoutingTarget, error_of_deletion, resolve
from penstock.gateway.selection.owner_selection import OwnerSelector
from penstock.gateway.selection.request_hold import RequestHold
from penstock.gateway.snapshots.snapshot import Service, Snapshot
from penstock.gateway.state.gateway_state import GatewayState
from penstock.gateway.state.response_owners import ResponseOwner
from penstock.gateway.stats.request_record import RequestRecord
from penstock.gateway.tenants.authorization import ModelAccess, check_route, max_body_bytes
from penstock.gateway.upstream.upstream import UpstreamRequest


class ProxiedRequest:
    """State of one request of an API. scope: the ASGI scope. request_id: sent to the engine."""

    def __init__(
        self,
        state: GatewayState,
        api: Api,
        scope: Scope,
        client: ClientResponse,
        request_id: str,
    ) -> None:
        self._state = state
        self._settings = state.settings
        self._api = api
        self._scope = scope
        self._client = client
        self._caller = caller_of(scope)
        self._telemetry = RequestTelemetry(state, scope, request_id)
        self._telemetry.note_caller(self._caller)
        address = client_address(scope, state.settings.trusted_proxies)
        self._allocation = RequestAllocation(state.limits, address)
        self._attempts = Attempts(
            state, client, self._telemetry, self._allocation, self._caller.name
        )
        self._quota = RequestQuota(state.quotas, self._caller.tenant)
        self._record: RequestRecord | None = None

    async def run(self, receive: Receive) -> None:
        """Read the request and respond to it.

        Raises RequestError, ClientDisconnected, RequestCancelled.
        """
        headers = checked_headers(
            self._scope["headers"], limit_bytes=self._settings.max_header_bytes
        )
        check_route(self._caller, self._api.path)
        body = await read_body(
            receive,
            headers.get(b"content-length", b""),
            self._allocation,
            limit_bytes=max_body_bytes(self._caller, self._settings.max_body_bytes),
            timeout_s=self._settings.request_timeout_s,
        )
        self._client.is_request_read = True
        # Latency objectives start here: how long the client takes to send its body does not count.
        arrived_s = self._telemetry.timeline.enter(RequestPhase.ROUTE)
        self._telemetry.line.num_request_bytes = len(body)
        request = parse(body, self._api)
        self._telemetry.line.is_stream = request.is_stream
        del body
        timeout_s = self._settings.total_timeout_s
        scopes = self._state.cancel_scopes
        with CancellationScope(receive, timeout_s, scopes) as cancellation:
            cancellation.enter_phase(RequestPhase.WAIT, timeout_s)
            serving = self._serve(request, headers, arrived_s, cancellation)
            del request  # frees the body once the response has begun
            await serving

    async def _serve(
        self,
        request: InferenceRequest,
        headers: Mapping[bytes, bytes],
        arrived_s: float,
        cancellation: CancellationScope,
    ) -> None:
        target, owner = await self._resolve(request, headers)
        service = target.service
        if target.timeout_s is not None:
            cancellation.limit_by_route(target.timeout_s)
        self._telemetry.note_target(target)
        self._client.service = service.key
        request = await self._admit(request, target)
        key = request.affinity_key(service.affinity)
        record = self._record = self._state.stats.record(
            service,
            request,
            arrived_s,
            client=self._caller.name,
            # Only compared sides tell tenants apart
            tenant=(self._caller.name or None) if service.is_mixed else None,
            key=key,
            adapter=target.adapter,
        )
        hold = self._new_hold(request, headers)
        holder = owner_of(self._caller, service.key)
        if service.is_to_wake:
            self._state.wake_calls.note()
            self._allocation.assign(holder, hold.retry_after_s(service))
        else:
            self._allocation.assign(holder)
        find_error = partial(
            error_of_deletion, request=request.without_body(), headers=headers, access=self._access,
            region=self._settings.region,
        )  # fmt: skip
        selector = (EndpointSelector if owner is None else partial(OwnerSelector, owner))(
            self._state, service.key, record, cancellation, key=key, attributes=request.attributes,
            tokens=request.tokens, error_of_deletion=find_error, adapter=target.adapter,
            hold=hold, requester=requester_of(self._caller, is_flex=request.is_flex),
        )  # fmt: skip
        request = request.with_model(target.model)
        outgoing = self._outgoing(request, service)
        trying = self._attempts.run(request, outgoing, target, selector, cancellation, record)
        del request, outgoing
        with self._state.open_requests.hold(service.key):
            await trying

    async def _admit(self, request: InferenceRequest, target: RoutingTarget) -> InferenceRequest:
        """Return the request as its tenant may send it. Raises RequestError."""
        tenant = self._caller.tenant
        if tenant is None:
            return request
        try:
            return await admit(request, target, tenant, self._quota, self._state.stats)
        finally:
            self._client.rate_limits = self._quota.headers

    def _new_hold(self, request: InferenceRequest, headers: Mapping[bytes, bytes]) -> RequestHold:
        """The limits of the request's wait for an engine, if its service is at zero."""
        return RequestHold(
            self._state,
            preferred_wait_s(headers.get(b"prefer", b"")),
            self._client.send_comment if request.is_stream else None,
        )

    def _outgoing(self, request: InferenceRequest, service: Service) -> UpstreamRequest:
        """Build the request that an engine of the service gets."""
        headers = headers_for_engine(
            self._scope,
            self._telemetry.line.request_id,
            service,
            self._state.authenticator.proxies.headers,
        )
        path = path_with_query(self._scope)
        return UpstreamRequest(self._api, path, headers, request.body, is_stream=request.is_stream)

    async def _resolve(
        self, request: InferenceRequest, headers: Mapping[bytes, bytes]
    ) -> tuple[RoutingTarget, ResponseOwner | None]:
        """Find the service, and the engine of it that has the response which the request continues."""
        snapshot = await first_snapshot(self._state)
        find = partial(
            resolve, snapshot, request, headers, self._access, region=self._settings.region
        )
        if not request.previous_response:
            return find(), None
        owner = self._state.response_owners.find(
            snapshot, request.previous_response, self._caller.name, param="previous_response_id"
        )
        return find(owner=owner.service), owner

    @property
    def _access(self) -> ModelAccess:
        return ModelAccess(self._caller.tenant, self._api.path)

    async def respond_to_cancellation(self, cancelled: RequestCancelled) -> None:
        """Count the cause of a cancellation, and send the client an error if it is still there."""
        relay, record = self._attempts.relay, self._record
        ending = _ending_of_cancellation(
            cancelled, is_blocked=relay is not None and relay.is_blocked
        )
        if record is not None and ending is not None:
            record.end.ending = ending
            if self._attempts.endpoint is not None:
                self._state.endpoints.charge(self._attempts.endpoint.pod, ending, self._state.now())
        if ending is Ending.CLIENT_LEFT:
            self.note_disconnect(cancelled.phase)
            return
        status, message = CANCELLED_RESPONSES[cancelled.cause]
        self._telemetry.line.reason = message
        if ending is Ending.CLIENT_STALLED:
            assert relay is not None
            self.note_disconnect(cancelled.phase)
            await relay.cut(status, message, "client")
        elif self._client.is_started:
            assert relay is not None
            await relay.cut(status, message, cancelled.cause.value)
        else:
            await self.reject(error_of_cancellation(cancelled.cause))

    async def reject(self, error: RequestError) -> None:
        """Give back the request's allocation, and send an error of the gateway's own."""
        self._allocation.release()
        self._telemetry.note_rejection(error)
        if self._record is not None:
            self._record.end.note_rejection(error)
        await self._client.send_error(error)

    def note_disconnect(self, phase: RequestPhase) -> None:
        """Count that the client disconnected, in which case the request has no outcome."""
        self._telemetry.note_disconnect(phase)

    def close(self) -> None:
        """Free what the request holds, and report it. Call it once, at the very end."""
        try:
            settle(self._quota, self._record, self._attempts)
        finally:  # an error in the accounts must not keep a slot or a connection
            self._attempts.close()
            self._allocation.release()
        relay = self._attempts.relay
        is_cut = relay is not None and bool(relay.cut_cause)
        self._telemetry.close(self._client, self._record, is_cut=is_cut)


def _ending_of_cancellation(cancelled: RequestCancelled, *, is_blocked: bool) -> Ending | None:
    """How a cancelled request ends; None: as one that no engine answered.

    is_blocked: whether its client does not read the response.
    """
    match cancelled.cause, cancelled.phase:
        case CancelCause.CLIENT_LEFT, _:
            return Ending.CLIENT_LEFT
        case CancelCause.SHUTDOWN, _:
            return Ending.SHUTDOWN
        case _ if is_blocked:
            return Ending.CLIENT_STALLED
        case _, (RequestPhase.RECEIVE | RequestPhase.WAIT):
            return None
        case cause, phase:
            return ending_of_timeout(
                has_response=phase is not RequestPhase.FIRST_BYTE,
                is_total=cancelled.is_total,
                is_of_route=cause is CancelCause.ROUTE_TIMEOUT,
            )


async def first_snapshot(state: GatewayState) -> Snapshot:
    """The present routing snapshot, once there is one. Raises RequestError if there is none in time."""
    if not await state.snapshots.wait_for_first(state.settings.wait_for_endpoint_s):
        message = "no engine is known yet"
        raise RequestError(503, message, retry_after_s=RETRY_AFTER_S, reason="not_synced")
    return state.snapshots.current


def error_of_cancellation(cause: CancelCause) -> RequestError:
    """The error for a client that waits for a response which was cancelled. It did not leave itself."""
    status, message = CANCELLED_RESPONSES[cause]
    retry_after_s = RETRY_AFTER_S if status == 503 else None
    return RequestError(status, message, retry_after_s=retry_after_s, reason=cause.value)


CANCELLED_RESPONSES = {
    CancelCause.TIMEOUT: (504, "the engine did not answer in time"),
    CancelCause.ROUTE_TIMEOUT: (504, "the time limit of the ModelRoute is over"),
    CancelCause.SHUTDOWN: (503, "the gateway is stopping"),
}
