"""Telemetry of one request: metrics, access log line, and spans."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.core.routing.charge import Ending
from penstock.core.routing.pick import Endpoint, Side
from penstock.core.routing.route import Backend, FallbackReason
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.http.client import ClientResponse
from penstock.gateway.http.headers import Scope
from penstock.gateway.request_lifecycle.timeline import Interval, RequestPhase, Timeline
from penstock.gateway.selection.routing_target import RoutingTarget
from penstock.gateway.state.gateway_state import GatewayState
from penstock.gateway.stats.request_record import RequestRecord
from penstock.gateway.telemetry.access_log import AccessLine
from penstock.gateway.tenants.caller import Caller
from penstock.gateway.upstream.upstream import UpstreamRequest

if TYPE_CHECKING:
    from penstock.gateway.telemetry.tracing import RequestTrace

# The phases in which clients disconnect, in the words of the metric and of the access log.
DISCONNECTED_WHILE = {
    RequestPhase.RECEIVE: "receiving",
    RequestPhase.ROUTE: "waiting",
    RequestPhase.WAIT: "waiting",
    RequestPhase.CONNECT: "first_byte",
    RequestPhase.FIRST_BYTE: "first_byte",
    RequestPhase.STREAM: "streaming",
}


class RequestTelemetry:
    """Records one request, from its head to the end of its response.

    scope: the ASGI scope. route: its path with the names of parameters; None: it has none. line: its line
    of the access log, written at the end. timeline: its phases.
    """

    def __init__(
        self, state: GatewayState, scope: Scope, request_id: str, route: str | None = None
    ) -> None:
        self._state = state
        self._metrics = state.metrics
        self.line = AccessLine(request_id, route or scope["path"], scope["method"])
        self.timeline = Timeline(state.now)
        self._trace: RequestTrace | None = None
        if state.tracer is not None:
            started_s = self.timeline.started_s
            trace = state.tracer.start(self.line, scope["headers"], started_s, state.now())
            self._trace, self.line.trace_id = trace, trace.trace_id

    def note_caller(self, caller: Caller) -> None:
        """Record who sends the request."""
        self.line.tenant, self.line.key = caller.name, caller.key

    def note_target(self, target: RoutingTarget) -> None:
        """Count the request for the service that it is routed to."""
        line, service = self.line, target.service.key
        line.service, line.model_route = service, target.model_route
        self._metrics.requests.labels(service).inc()
        if target.adapter is not None:
            line.adapter = target.adapter.engine_name
            self._metrics.adapters.count_request(target.adapter)
        if target.model_route:
            self._metrics.routes.requests.labels(target.model_route, service).inc()

    def note_fallback(self, route: str, backend: Backend, reason: FallbackReason) -> None:
        """Count that the request goes to a fallback, and forget the engine that was tried before.

        route: "namespace/name" of the ModelRoute.
        """
        line = self.line
        target = f"{backend.kind}/{backend.name}"
        self._metrics.routes.fallbacks.labels(route, target, reason.label).inc()
        line.fallback = reason.label
        line.adapter = line.revision = line.pod = ""

    def note_endpoint(self, endpoint: Endpoint, last_failure: Ending | None) -> None:
        """Record that an endpoint is tried, as a retry if there was a failure before."""
        line = self.line
        line.revision, line.pod = endpoint.revision, endpoint.pod
        line.num_attempts += 1
        if last_failure is not None:
            self._metrics.retries.labels(line.service, last_failure.value).inc()

    def start_attempt(self, request: UpstreamRequest, endpoint: Endpoint) -> UpstreamRequest:
        """Start the span of an attempt. Returns the request with that span as its parent."""
        if self._trace is None:
            return request
        return self._trace.start_attempt(request, endpoint, self._state.now())

    def fail_attempt(self, failure: Ending) -> None:
        """End the span of the attempt that failed."""
        if self._trace is not None:
            self._trace.fail_attempt(failure, self._state.now())

    def headers_for_copy(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the headers of a mirrored copy, with the request's span as its parent."""
        return headers if self._trace is None else self._trace.headers_for_copy(headers)

    def note_rejection(self, error: RequestError) -> None:
        """Count an error response of the gateway itself."""
        self.line.reason, self.line.rejection = error.message, error.reason
        self._metrics.rejections.labels(self.line.service, error.reason).inc()
        if self.line.tenant:
            self._metrics.tenants.rejections.labels(self.line.tenant, error.reason).inc()

    def note_disconnect(self, phase: RequestPhase) -> None:
        """Count that the client disconnected, in which case the request has no outcome."""
        doing = DISCONNECTED_WHILE[phase]
        self.line.reason = f"the client disconnected while {doing}"
        self._metrics.disconnects.labels(self.line.service, doing).inc()

    def close(self, client: ClientResponse, record: RequestRecord | None, *, is_cut: bool) -> None:
        """Count the outcome of the request, log it, and end its trace. Call it once, at the very end.

        record: None if the request reached no service. is_cut: whether the response was cut off.
        """
        line, intervals = self.line, self.timeline.intervals(self._state.now())
        if record is not None:
            self.close_record(record)
        self._metrics.observe_times(line.service, intervals, line.trace_id)
        code = str(client.status)
        self._metrics.responses.labels(line.service, line.revision, line.route, code).inc()
        if not line.reason and is_cut:
            line.reason = "the engine's response was cut off"
        elif not line.reason and record is not None and record.has_error:
            line.reason = "the engine sent an error event"
        self._export(client, record, intervals)

    def close_record(self, record: RequestRecord) -> None:
        """Count the outcome of the request for the service that it was routed to last."""
        line = self.line
        outcome = record.close(
            self._serving_sides() if record.end.last_failure else (),
            allows_retries=self._state.settings.allows_retries,
        )
        self._metrics.observe_outcome(line.service, line.revision, outcome, line.trace_id)

    def _serving_sides(self) -> set[Side]:
        """The sides of the request's service that have engines and traffic."""
        service = self._state.snapshots.current.get(self.line.service)
        if service is None:
            return set()
        return {e.side for e in service.endpoints if service.weights.get(e.side, 0) > 0}

    def _export(
        self, client: ClientResponse, record: RequestRecord | None, intervals: list[Interval]
    ) -> None:
        """Write the request to the access log, and end its trace."""
        is_answered = record is not None and record.has_response and client.status < 400
        usage = record.usage if record is not None and is_answered else None
        if self._state.settings.access_log:
            self.line.write(client.status, client.num_bytes, intervals, usage)
        if self._trace is not None:
            self._trace.end(self.line, client.status, intervals, usage)
