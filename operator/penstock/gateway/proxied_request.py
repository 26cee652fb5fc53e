"""Proxies one request: reads it, sends it to an endpoint, retries, and relays the response.

    receiving -> waiting -> first byte -> streaming
                    ^            |
                    '--- retry --'

Nothing is sent to the client before the first byte of an engine's response, so another endpoint may be
tried until then: `core.routing.retry` says when. An engine's own 500 is passed on if every other
endpoint that is tried fails too.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping

from penstock.core.canary.tenants import tenant_name
from penstock.core.routing.pick import Endpoint
from penstock.core.routing.retry import Failure, may_retry
from penstock.gateway.body_memory import BodyReservation
from penstock.gateway.cancellation import (
    CancelCause,
    CancellationScope,
    Phase,
    Receive,
    RequestCancelled,
)
from penstock.gateway.client import ClientResponse, checked_headers, read_body
from penstock.gateway.endpoint_selection import EndpointSelector
from penstock.gateway.gateway_state import GatewayState
from penstock.gateway.mirroring import MirroredRequest
from penstock.gateway.model_routing import RoutingTarget, resolve
from penstock.gateway.openai import (
    CHAT_PATH,
    RETRY_AFTER_S,
    InferenceRequest,
    RequestError,
    parse,
)
from penstock.gateway.relay import Relay
from penstock.gateway.request_record import RequestRecord
from penstock.gateway.request_telemetry import RequestTelemetry
from penstock.gateway.snapshot import Service
from penstock.gateway.timeline import RequestPhase
from penstock.gateway.upstream import AttemptFailed, UpstreamRequest, UpstreamResponse
from penstock.gateway.upstream_headers import Scope, headers_for_engine, path_with_query


class ProxiedRequest:
    """State of one request that is proxied. scope: the ASGI scope. request_id: sent to the engine."""

    def __init__(
        self, state: GatewayState, scope: Scope, client: ClientResponse, request_id: str
    ) -> None:
        self._state = state
        self._settings = state.settings
        self._scope = scope
        self._client = client
        self._telemetry = RequestTelemetry(state, scope, request_id)
        self._memory = BodyReservation(state.bodies)
        self._endpoint: Endpoint | None = None
        self._relay: Relay | None = None
        self._record: RequestRecord | None = None

    async def run(self, receive: Receive) -> None:
        """Read the request and respond to it.

        Raises RequestError, ClientDisconnected, RequestCancelled.
        """
        headers = checked_headers(
            self._scope["headers"], limit_bytes=self._settings.max_header_bytes
        )
        with self._memory:
            body = await read_body(
                receive,
                headers.get(b"content-length", b""),
                self._memory,
                limit_bytes=self._settings.max_body_bytes,
                timeout_s=self._settings.request_timeout_s,
            )
            self._client.is_request_read = True
            # Latency objectives start here: how long the client takes to send its body does not count.
            arrived_s = self._telemetry.timeline.enter(RequestPhase.ROUTE)
            self._telemetry.line.num_request_bytes = len(body)
            request = parse(body)
            self._telemetry.line.is_stream = request.is_stream
            del body
            timeout_s = self._settings.total_timeout_s
            scopes = self._state.cancel_scopes
            with CancellationScope(receive, timeout_s, scopes) as cancellation:
                cancellation.enter_phase(Phase.WAITING, timeout_s)
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
        target = await self._resolve(request, headers)
        service = target.service
        if target.timeout_s is not None:
            cancellation.limit_total(target.timeout_s)
        self._telemetry.note_target(target)
        record = self._record = self._state.stats.record(
            service,
            arrived_s,
            request.prompt_bytes,
            is_stream=request.is_stream,
            is_chat=self._scope["path"] == CHAT_PATH,
            is_text_only=request.is_text_only,
            tenant=_tenant(service, headers),
        )
        self._memory.assign(service.key)
        request = request.with_model(service.served_name)
        key = request.affinity_key(service.affinity)
        selector = EndpointSelector(
            self._state, service.key, record, cancellation, key=key, tokens=request.tokens
        )
        trying = self._try_endpoints(request, target, selector, cancellation, record)
        del request
        with self._state.open_requests.hold(service.key):
            await trying

    async def _try_endpoints(
        self,
        request: InferenceRequest,
        target: RoutingTarget,
        selector: EndpointSelector,
        cancellation: CancellationScope,
        record: RequestRecord,
    ) -> None:
        """Try one endpoint after another until one responds or `may_retry` says no.

        Raises RequestError.
        """
        outgoing = self._outgoing(request, target.service)
        failures: list[Failure] = []
        error: UpstreamResponse | None = None
        while may_retry(failures, self._settings.max_attempts):
            self._telemetry.timeline.enter(RequestPhase.WAIT)
            try:
                selected = await selector.next(is_retry=bool(failures))
            except RequestError:
                if Failure.ERROR in failures:
                    break
                selector.note_all_failed()
                raise
            self._endpoint = endpoint = selected.endpoint
            self._telemetry.note_endpoint(endpoint, failures[-1] if failures else None)
            with (
                self._in_flight(endpoint, request.tokens),
                record.in_flight(endpoint.pod, selected.reservation),
            ):
                began_s = self._state.now()
                result = await self._attempt(
                    endpoint, outgoing, cancellation, is_retry=bool(failures)
                )
                if isinstance(result, UpstreamResponse):
                    self._note_health(endpoint.pod, result, selector)
                    if target.mirrors or target.rollout_mirror:
                        self._mirror(request, target, outgoing.headers)
                    del request, outgoing
                    await self._relay_response(result, endpoint, cancellation, record)
                    return
                took_s = self._state.now() - began_s
                selector.note_failure(endpoint.pod, result.failure, took_s)
                if result.failure is not Failure.CONNECT and selector.is_serving(endpoint.pod):
                    record.charge_failure(endpoint.pod)
            failures.append(result.failure)
            if result.failure is Failure.ERROR:
                error = result.response or error
        selector.note_all_failed()
        await self._give_up(failures[-1], error, cancellation, record)

    def _outgoing(self, request: InferenceRequest, service: Service) -> UpstreamRequest:
        """Build the request that an engine of the service gets."""
        headers = headers_for_engine(self._scope, self._telemetry.line.request_id, service)
        path = path_with_query(self._scope)
        return UpstreamRequest(path, headers, request.body, is_stream=request.is_stream)

    async def _attempt(
        self,
        endpoint: Endpoint,
        outgoing: UpstreamRequest,
        cancellation: CancellationScope,
        *,
        is_retry: bool,
    ) -> UpstreamResponse | AttemptFailed:
        telemetry, budget = self._telemetry, self._state.retry_budget
        outgoing = telemetry.start_attempt(outgoing, endpoint)
        with budget.hold(telemetry.line.service) if is_retry else contextlib.nullcontext():
            try:
                return await self._state.upstream.send(
                    endpoint.address, outgoing, cancellation, telemetry.timeline
                )
            except AttemptFailed as failed:
                telemetry.fail_attempt(failed.failure)
                return failed

    async def _relay_response(
        self,
        response: UpstreamResponse,
        endpoint: Endpoint,
        cancellation: CancellationScope,
        record: RequestRecord,
    ) -> None:
        """Relay an endpoint's response to the client. The request's body is not needed any more."""
        self._memory.release()
        line = self._telemetry.line
        relay = self._relay = Relay(
            self._state, line.service, endpoint, response, self._client, record, line.trace_id
        )
        self._telemetry.timeline.enter(RequestPhase.STREAM)
        await relay.run(cancellation)

    def _note_health(
        self, pod: str, response: UpstreamResponse, selector: EndpointSelector
    ) -> None:
        """Record what the start of a response that is passed on says about the endpoint's health."""
        if response.status >= 500:
            selector.note_all_failed()
        elif response.is_error:
            return
        elif response.source is None:
            self._state.endpoints.note_response_complete(pod)
        else:
            self._state.endpoints.note_response_start(pod)

    async def _give_up(
        self,
        last: Failure,
        error: UpstreamResponse | None,
        cancellation: CancellationScope,
        record: RequestRecord,
    ) -> None:
        """Pass on the engine's own error response. Raises RequestError if there is none."""
        if error is not None:
            cancellation.close()
            record.mark_failed()
            await self._client.send(error.status, error.headers, error.first_chunk)
            return
        if last is Failure.UNAVAILABLE:
            message = "no engine accepts requests"
            raise RequestError(503, message, retry_after_s=RETRY_AFTER_S, reason="engines_failed")
        raise RequestError(502, "the engines that were tried did not answer")

    async def _resolve(
        self, request: InferenceRequest, headers: Mapping[bytes, bytes]
    ) -> RoutingTarget:
        snapshots = self._state.snapshots
        if not snapshots.is_synced:
            await snapshots.wait_for_change(self._settings.wait_for_endpoint_s)
        if not snapshots.is_synced:
            message = "no engine is known yet"
            raise RequestError(503, message, retry_after_s=RETRY_AFTER_S, reason="not_synced")
        return resolve(snapshots.current, request, headers)

    def _mirror(
        self, request: InferenceRequest, target: RoutingTarget, headers: Mapping[str, str]
    ) -> None:
        """Schedule the copies of the request, behind the work that the event loop has to do now."""
        loop = asyncio.get_running_loop()
        headers = self._telemetry.headers_for_copy(headers)
        copy = MirroredRequest(request, path_with_query(self._scope), headers)
        sender, snapshot = self._state.mirror, self._state.snapshots.current
        for mirror in target.mirrors:
            loop.call_soon(sender.send_for_route, copy, mirror, snapshot, target.service.namespace)
        if target.rollout_mirror is not None:
            stats = self._state.stats.get(target.service.key)
            loop.call_soon(
                sender.send_for_rollout, copy, target.rollout_mirror, target.service, stats
            )

    @contextlib.contextmanager
    def _in_flight(self, endpoint: Endpoint, tokens: int) -> Iterator[None]:
        """Count the request and its tokens as in flight at the endpoint while the block runs."""
        in_flight = self._state.metrics.in_flight
        gauge = in_flight.labels(self._telemetry.line.service, endpoint.revision)
        gauge.inc()
        try:
            with self._state.endpoints.hold(endpoint.pod, tokens):
                yield
        finally:
            gauge.dec()

    async def respond_to_cancellation(self, cancelled: RequestCancelled) -> None:
        """Count the cause of a cancellation, and send the client an error if it is still there."""
        if cancelled.cause is CancelCause.CLIENT_LEFT:
            self.note_disconnect(cancelled.phase)
            return
        if cancelled.cause is CancelCause.SHUTDOWN and self._record is not None:
            self._record.excuse_engine()
        if cancelled.cause is CancelCause.TIMEOUT and self._endpoint is not None:
            pod, now = self._endpoint.pod, self._state.now()
            if cancelled.phase is Phase.FIRST_BYTE:
                self._state.endpoints.note_failure(pod, now)
            # The total time is no failure of the engine: a slow client may have used it up.
            elif cancelled.phase is Phase.STREAMING and not cancelled.is_total:
                self._state.endpoints.note_failure(pod, now, broke_off=True)
        status, message = CANCELLED_RESPONSES[cancelled.cause]
        self._telemetry.line.reason = message
        relay = self._relay
        is_timeout = cancelled.cause is CancelCause.TIMEOUT
        if is_timeout and relay is not None and relay.is_blocked:  # the client did not read
            self.note_disconnect(cancelled.phase)
            await relay.cut(status, message, "client")
        elif self._client.has_begun:
            assert relay is not None
            await relay.cut(status, message, cancelled.cause.value)
        else:
            retry_after_s = RETRY_AFTER_S if status == 503 else None
            reason = cancelled.cause.value
            await self.reject(
                RequestError(status, message, retry_after_s=retry_after_s, reason=reason)
            )

    async def reject(self, error: RequestError) -> None:
        """Send an error of the gateway's own."""
        self._telemetry.note_rejection(error)
        await self._client.send_error(error)

    def note_disconnect(self, phase: Phase) -> None:
        """Count that the client disconnected, in which case the request has no outcome."""
        self._telemetry.note_disconnect(phase)

    def close(self) -> None:
        """Report the request. Call it once, at the very end."""
        is_cut = self._relay is not None and bool(self._relay.cut_cause)
        self._telemetry.close(self._client, self._record, is_cut=is_cut)


def _tenant(service: Service, headers: Mapping[bytes, bytes]) -> str | None:
    """The tenant that the request counts for; None if the service does not tell tenants apart."""
    if not service.tenant_header or not service.is_mixed:
        return None
    return tenant_name(headers.get(service.tenant_header.encode(), b"").decode("latin-1"))


CANCELLED_RESPONSES = {
    CancelCause.TIMEOUT: (504, "the engine did not answer in time"),
    CancelCause.SHUTDOWN: (503, "the gateway is stopping"),
}
