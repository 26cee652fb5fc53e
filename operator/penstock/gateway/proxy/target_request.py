"""Sends one request to one target: admits it, records it in the statistics, and tries engines."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from penstock.core.routing.apis import Api
from penstock.core.routing.charge import Ending
from penstock.gateway.admission.requesters import owner_of, requester_of
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.apis.request import InferenceRequest
from penstock.gateway.http.client import ClientResponse
from penstock.gateway.http.headers import Scope, headers_for_engine, path_with_query
from penstock.gateway.limits.request_allocation import RequestAllocation
from penstock.gateway.proxy.attempts import Attempts
from penstock.gateway.proxy.external_attempt import ExternalAttempt
from penstock.gateway.proxy.request_telemetry import RequestTelemetry
from penstock.gateway.proxy.target_attempts import TargetAttempts
from penstock.gateway.proxy.tenant_limits import admit, settle
from penstock.gateway.quotas.request_quota import RequestQuota
from penstock.gateway.request_lifecycle.cancellation import CancellationScope
from penstock.gateway.request_lifecycle.timeline import RequestPhase
from penstock.gateway.selection.endpoint_selection import EndpointSelector
from penstock.gateway.selection.model_routing import error_of_deletion
from penstock.gateway.selection.owner_selection import OwnerSelector
from penstock.gateway.selection.request_hold import RequestHold
from penstock.gateway.selection.routing_target import RoutingTarget
from penstock.gateway.snapshots.snapshot import Service
from penstock.gateway.state.gateway_state import GatewayState
from penstock.gateway.state.response_owners import ResponseOwner
from penstock.gateway.stats.request_record import RequestRecord
from penstock.gateway.tenants.authorization import ModelAccess
from penstock.gateway.tenants.caller import Caller
from penstock.gateway.upstream.upstream import UpstreamRequest


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Parts of a request that are the same at each of its targets."""

    state: GatewayState
    api: Api
    scope: Scope  # of ASGI
    client: ClientResponse
    caller: Caller
    telemetry: RequestTelemetry
    allocation: RequestAllocation  # of the gateway's limits

    @property
    def access(self) -> ModelAccess:
        """Models that the caller may use."""
        return ModelAccess(self.caller.tenant, self.api.path)


class TargetRequest:
    """A request at one target.

    note_response: called when there is a response, so that the request goes to no other target. record: None
    until the request is admitted.
    """

    def __init__(self, context: RequestContext, note_response: Callable[[], None]) -> None:
        self._context = context
        self._state, self._client = context.state, context.client
        self._caller, self._telemetry = context.caller, context.telemetry
        self._parts = (
            context.state, context.client, context.telemetry, note_response, context.caller.name,
        )  # fmt: skip
        self._at_engines = Attempts(*self._parts)
        self.attempts: TargetAttempts = self._at_engines
        self._quota = RequestQuota(context.state.quotas, context.caller.tenant)
        self.record: RequestRecord | None = None

    async def run(
        self,
        target: RoutingTarget,
        owner: ResponseOwner | None,
        request: InferenceRequest,
        hold: RequestHold,
        headers: Mapping[bytes, bytes],
        arrived_s: float,
        cancellation: CancellationScope,
    ) -> None:
        """Send a request to the engines of the target, and relay the response.

        owner: the engine that alone can answer; None: any can. headers: by name in lower case. arrived_s:
        when the target got the request. Raises RequestError, RequestCancelled.
        """
        service = target.service
        if target.timeout_s is not None:
            cancellation.limit_by_route(target.timeout_s)
        self._telemetry.note_target(target)
        self._client.service, self._client.model = service.key, target.served_name
        request = await self._admit(request, target)
        key = request.affinity_key(service.affinity)
        record = self.record = self._state.stats.record(
            service,
            request,
            arrived_s,
            client=self._caller.name,
            # Tenants are counted apart only where sides are compared
            tenant=(self._caller.name or None) if service.is_mixed else None,
            key=key,
            adapter=target.adapter,
        )
        holder = owner_of(self._caller, service.key)
        if service.is_to_wake:
            self._state.wake_calls.note()
            self._context.allocation.assign(holder, hold.retry_after_s(service))
        else:
            self._context.allocation.assign(holder)
        if target.external is None:
            selector = self._selector(target, owner, request, hold, headers, record, cancellation)
            request = request.with_model(target.model)
            outgoing = self._outgoing(request, service)
            trying = self._at_engines.run(request, outgoing, target, selector, cancellation, record)
            del outgoing
        else:
            attempt = self.attempts = ExternalAttempt(*self._parts)
            trying = attempt.run(request, headers, target.external, cancellation, record)
        del request
        with self._state.open_requests.hold(service.key):
            await trying

    def _selector(
        self,
        target: RoutingTarget,
        owner: ResponseOwner | None,
        request: InferenceRequest,
        hold: RequestHold,
        headers: Mapping[bytes, bytes],
        record: RequestRecord,
        cancellation: CancellationScope,
    ) -> EndpointSelector:
        """The selection of the engines that are tried."""
        find_error = partial(
            error_of_deletion,
            request=request.without_body(),
            headers=headers,
            access=self._context.access,
            region=self._state.settings.region,
        )
        key = request.affinity_key(target.service.affinity)
        return (EndpointSelector if owner is None else partial(OwnerSelector, owner))(
            self._state, target.service.key, record, cancellation, key=key, attributes=request.attributes,
            tokens=request.tokens, error_of_deletion=find_error, adapter=target.adapter,
            hold=hold, requester=requester_of(self._caller, is_flex=request.is_flex),
        )  # fmt: skip

    async def _admit(self, request: InferenceRequest, target: RoutingTarget) -> InferenceRequest:
        """Return the request as its tenant may send it. Raises RequestError."""
        tenant = self._caller.tenant
        if tenant is None:
            return request
        try:
            return await admit(request, target, tenant, self._quota, self._state.stats)
        finally:
            self._client.rate_limits = self._quota.headers

    def _outgoing(self, request: InferenceRequest, service: Service) -> UpstreamRequest:
        """Build the request that an engine of the service gets."""
        headers = headers_for_engine(
            self._context.scope,
            self._telemetry.line.request_id,
            service,
            self._state.authenticator.proxies.headers,
        )
        path = path_with_query(self._context.scope)
        return UpstreamRequest(
            self._context.api, path, headers, request.body, is_stream=request.is_stream
        )

    def note_late(self, cancellation: CancellationScope) -> RequestError:
        """Count that no first byte came in time. Returns the error of a request without a fallback.

        The engine is charged only for time of its own. Otherwise a queue, or a tenant's long prompts, would
        eject engines that others share.
        """
        record, endpoint = self.record, self.attempts.endpoint
        is_at_engine = cancellation.phase is RequestPhase.FIRST_BYTE
        if is_at_engine and record is not None and endpoint is not None and record.is_engine_late:
            record.end.ending = Ending.LATE
            self._state.endpoints.charge(endpoint.pod, record.end.ending, self._state.now())
        message = "no engine sent a first token in time"
        return RequestError(
            503, message, retry_after_s=RETRY_AFTER_S, reason="late_first_token",
            ending=Ending.NO_ENGINE,
        )  # fmt: skip

    def leave(self, error: RequestError) -> None:
        """Count how the request ended at the target, which it leaves for another one."""
        self.attempts.close()
        self._quota.settle(None)
        if self.record is not None:
            self.record.end.note_rejection(error)
            self._telemetry.close_record(self.record)
        self._client.revision = ""

    def close(self) -> None:
        """Free what the request holds for the target. Call it at the very end."""
        try:
            settle(self._quota, self.record, self.attempts)
        finally:  # an error in the accounts must not keep a slot or a connection
            self.attempts.close()
