"""Proxies one request: reads it, finds its service, and responds to it.

receiving -> waiting -> first byte -> streaming
                ^            |
                '--- retry --'   at another engine, or at a fallback of its ModelRoute
"""

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial

from penstock.core.routing.apis import Api
from penstock.core.routing.charge import Ending
from penstock.core.routing.fallback import fallback_reason, needs_retry_budget
from penstock.core.routing.route import FallbackReason
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.apis.request import InferenceRequest, parse
from penstock.gateway.http.client import ClientResponse, checked_headers, read_body
from penstock.gateway.http.headers import Scope, client_address, preferred_wait_s
from penstock.gateway.limits.request_allocation import RequestAllocation
from penstock.gateway.proxy.attempts import EngineError
from penstock.gateway.proxy.authentication import caller_of
from penstock.gateway.proxy.cancelled_request import (
    CANCELLED_RESPONSES,
    ending_of_cancellation,
    error_of_cancellation,
)
from penstock.gateway.proxy.limited_request import limit_sampling
from penstock.gateway.proxy.request_telemetry import RequestTelemetry
from penstock.gateway.proxy.target_request import RequestContext, TargetRequest
from penstock.gateway.request_lifecycle.cancellation import (
    CancellationScope,
    Receive,
    RequestCancelled,
)
from penstock.gateway.request_lifecycle.timeline import RequestPhase
from penstock.gateway.selection.fallback_targets import FallbackTargets
from penstock.gateway.selection.model_routing import resolve
from penstock.gateway.selection.request_hold import RequestHold
from penstock.gateway.selection.routing_target import BackendMissing, RoutingTarget
from penstock.gateway.snapshots.snapshot import Snapshot
from penstock.gateway.state.gateway_state import GatewayState
from penstock.gateway.state.response_owners import ResponseOwner
from penstock.gateway.tenants.authorization import check_route, max_body_bytes


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
        self._context = RequestContext(
            state, api, scope, client, self._caller, self._telemetry, self._allocation
        )
        self._request: InferenceRequest | None = None  # until there is a response
        self._first_byte_limit = asyncio.timeout(None)
        self._at_target = TargetRequest(self._context, self._note_response)

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
        self._request = parse(body, self._api)
        self._telemetry.line.is_stream = self._request.is_stream
        del body
        timeout_s = self._settings.total_timeout_s
        scopes = self._state.cancel_scopes
        with CancellationScope(receive, timeout_s, scopes) as cancellation:
            try:
                await self._serve(headers, arrived_s, cancellation)
            except EngineError as error:
                cancellation.close()
                response = error.response
                await self._client.send(response.status, response.headers, response.first_chunk)

    async def _serve(
        self,
        headers: Mapping[bytes, bytes],
        arrived_s: float,
        cancellation: CancellationScope,
    ) -> None:
        """Send the request to its target, then to fallbacks, until one responds. Raises RequestError."""
        target: RoutingTarget | None = None
        owner: ResponseOwner | None = None
        error: RequestError | None = None
        cancellation.enter_phase(RequestPhase.WAIT, self._settings.total_timeout_s)
        try:
            target, owner = await self._resolve(self._pending, headers)
            followed = target.followed
        except BackendMissing as missing:
            error, followed = missing, missing.followed
        if followed is not None:
            self._request = limit_sampling(self._pending, followed.rule, self._client)
        if self._pending.previous_response:  # no other service has it
            followed = None
        fallbacks = FallbackTargets(followed, self._context.access, self._pending.api)
        with contextlib.ExitStack() as budget:
            while target is None or (
                error := await self._try(target, owner, fallbacks, headers, arrived_s, cancellation)
            ):
                assert error is not None
                target, owner = self._fall_back(error, fallbacks, budget), None
                arrived_s = self._telemetry.timeline.enter(RequestPhase.ROUTE)
                cancellation.enter_phase(RequestPhase.WAIT, self._settings.total_timeout_s)

    async def _try(
        self,
        target: RoutingTarget,
        owner: ResponseOwner | None,
        fallbacks: FallbackTargets,
        headers: Mapping[bytes, bytes],
        arrived_s: float,
        cancellation: CancellationScope,
    ) -> RequestError | None:
        """Send the request to the engines of one target. Returns the error if none of them responds."""
        snapshot, is_stream = self._state.snapshots.current, self._pending.is_stream
        is_absence_final = fallbacks.find(snapshot, FallbackReason.ABSENCE) is None
        hold = self._new_hold(headers, holds_long=is_absence_final)
        limit_s = fallbacks.first_byte_limit_s(snapshot, target.service) if is_stream else None
        try:
            async with asyncio.timeout(limit_s) as self._first_byte_limit:
                await self._at_target.run(
                    target, owner, self._pending, hold, headers, arrived_s, cancellation
                )
        except RequestError as error:
            return error
        except TimeoutError:
            if not self._first_byte_limit.expired():
                raise
            return self._at_target.note_late(cancellation)
        return None

    def _fall_back(
        self, error: RequestError, fallbacks: FallbackTargets, budget: contextlib.ExitStack
    ) -> RoutingTarget:
        """Return the next target of a request that failed. Raises the error if there is none.

        budget: holds the retry of the request's service to its end.
        """
        reason = fallback_reason(error.reason, self._at_target.attempts.failures)
        if reason is None or self._client.is_started or self._client.is_held:
            raise error
        snapshot = self._state.snapshots.current
        while (backend := fallbacks.find(snapshot, reason)) is not None:
            try:
                target = fallbacks.take(snapshot, backend, self._pending)
            except BackendMissing:
                continue
            if needs_retry_budget(reason) and not self._hold_retry(budget):
                break
            self._at_target.leave(error)
            self._at_target = TargetRequest(self._context, self._note_response)
            self._telemetry.note_fallback(target.model_route, backend, reason)
            self._client.fallback = reason.label
            return target
        raise error

    def _hold_retry(self, budget: contextlib.ExitStack) -> bool:
        """Count the request as a retry of its service, if the retry budget has room for it."""
        state, service = self._state, self._telemetry.line.service
        # The budget is a part of the open requests: this one stays open while it counts as a retry.
        if not state.retry_budget.has_room(service, state.open_requests.count(service) + 1):
            return False
        budget.enter_context(state.open_requests.hold(service))
        budget.enter_context(state.retry_budget.hold(service))
        return True

    def _note_response(self) -> None:
        """Free the body, as the request goes to no other target."""
        self._request = None
        self._allocation.release_body()
        if not self._first_byte_limit.expired():
            self._first_byte_limit.reschedule(None)

    @property
    def _pending(self) -> InferenceRequest:
        """The request as the client sent it, within the limits of its rule. There is no response yet."""
        assert self._request is not None
        return self._request

    def _new_hold(self, headers: Mapping[bytes, bytes], *, holds_long: bool) -> RequestHold:
        """The limits of the request's wait for an engine, if its service is at zero.

        holds_long: whether no fallback answers while there is no engine. Otherwise the client gets nothing
        while it waits, which it does for the time until its first comment unless it prefers another one.
        """
        wait_s = preferred_wait_s(headers.get(b"prefer", b""))
        if not holds_long:
            wait_s = self._settings.hold_comment_interval_s if wait_s is None else wait_s
            return RequestHold(self._state, wait_s)
        is_stream = self._pending.is_stream
        return RequestHold(self._state, wait_s, self._client.send_comment if is_stream else None)

    async def _resolve(
        self, request: InferenceRequest, headers: Mapping[bytes, bytes]
    ) -> tuple[RoutingTarget, ResponseOwner | None]:
        """Find the service, and the engine of it that has the response which the request continues."""
        snapshot = await first_snapshot(self._state)
        access, region = self._context.access, self._settings.region
        find = partial(resolve, snapshot, request, headers, access, region=region)
        if not request.previous_response:
            return find(), None
        owner = self._state.response_owners.find(
            snapshot, request.previous_response, self._caller.name, param="previous_response_id"
        )
        return find(owner=owner.service), owner

    async def respond_to_cancellation(self, cancelled: RequestCancelled) -> None:
        """Count the cause of a cancellation, and send the client an error if it is still there."""
        attempts, record = self._at_target.attempts, self._at_target.record
        relay = attempts.relay
        ending = ending_of_cancellation(
            cancelled, is_blocked=relay is not None and relay.is_blocked
        )
        if record is not None and ending is not None:
            record.end.ending = ending
            if attempts.endpoint is not None:
                self._state.endpoints.charge(attempts.endpoint.pod, ending, self._state.now())
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
        if self._at_target.record is not None:
            self._at_target.record.end.note_rejection(error)
        await self._client.send_error(error)

    def note_disconnect(self, phase: RequestPhase) -> None:
        """Count that the client disconnected, in which case the request has no outcome."""
        self._telemetry.note_disconnect(phase)

    def close(self) -> None:
        """Free what the request holds, and report it. Call it once, at the very end."""
        try:
            self._at_target.close()
        finally:
            self._allocation.release()
        relay = self._at_target.attempts.relay
        is_cut = relay is not None and bool(relay.cut_cause)
        self._telemetry.close(self._client, self._at_target.record, is_cut=is_cut)


async def first_snapshot(state: GatewayState) -> Snapshot:
    """The present routing snapshot, once there is one. Raises RequestError if there is none in time."""
    if not await state.snapshots.wait_for_first(state.settings.wait_for_endpoint_s):
        message = "no engine is known yet"
        raise RequestError(503, message, retry_after_s=RETRY_AFTER_S, reason="not_synced")
    return state.snapshots.current
