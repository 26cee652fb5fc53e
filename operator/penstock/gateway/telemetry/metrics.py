"""The gateway's Prometheus metrics. Label service: "namespace/name", empty while it is not known."""

from collections.abc import Collection, Iterable, Mapping, Set

from penstock.clients.metrics.process import ProcessMetrics
from penstock.gateway.request_lifecycle.timeline import Interval, seconds_by_phase
from penstock.gateway.stats.request_ending import RequestOutcome
from penstock.gateway.telemetry.adapter_metrics import AdapterMetrics
from penstock.gateway.telemetry.route_metrics import RouteMetrics
from penstock.gateway.telemetry.tenant_metrics import TenantMetrics
from penstock.observability.metrics import gateway as specs
from penstock.observability.metrics.gateway_tenants import TENANT
from penstock_engine.telemetry.exposition import exemplar

SERVICE_COUNTS = (
    specs.REQUESTS, specs.REJECTIONS, specs.RETRIES, specs.DISCONNECTS, specs.EJECTIONS, specs.WAIT_S,
)  # fmt: skip
OBJECTIVE_COUNTERS = specs.OBJECTIVE_REQUESTS, specs.OBJECTIVE_MISSES


class Metrics(ProcessMetrics):
    """All metrics of one gateway, in a registry of their own."""

    def __init__(self) -> None:
        super().__init__(
            specs.METRICS,
            build_info=specs.BUILD_INFO,
            watch_restarts=specs.WATCH_RESTARTS,
            credential_expiry=specs.CREDENTIAL_EXPIRY,
        )
        made = self.metric_set
        self.requests = made.counter(specs.REQUESTS)
        self.responses = made.counter(specs.RESPONSES)
        self.rejections = made.counter(specs.REJECTIONS)
        self.open = made.gauge(specs.OPEN)
        self.in_flight = made.gauge(specs.IN_FLIGHT)
        self.waiting = made.gauge(specs.WAITING)
        self.wait_s = made.histogram(specs.WAIT_S)
        self.first_byte_s = made.histogram(specs.FIRST_BYTE_S)
        self.retries = made.counter(specs.RETRIES)
        self.cut = made.counter(specs.STREAMS_CUT)
        self.disconnects = made.counter(specs.DISCONNECTS)
        self.mirrored_requests = made.counter(specs.MIRRORED_REQUESTS)
        self.mirrored_first_byte_s = made.histogram(specs.MIRRORED_FIRST_BYTE_S)
        self.endpoints = made.gauge(specs.ENDPOINTS)
        self.ejections = made.counter(specs.EJECTIONS)
        self.snapshots = made.counter(specs.SNAPSHOTS)
        self.snapshot_age_s = made.gauge(specs.SNAPSHOT_AGE_S)
        self.connections = made.gauge(specs.CONNECTIONS)
        self.tls_expiry = made.gauge(specs.TLS_CERTIFICATE_EXPIRY)
        self.tls_reload_failures = made.counter(specs.TLS_RELOAD_FAILURES)
        self.held_body_bytes = made.gauge(specs.HELD_BODY_BYTES)
        self.held_answer_bytes = made.gauge(specs.HELD_ANSWER_BYTES)
        self.loop_lag_s = made.gauge(specs.LOOP_LAG_S)
        self.draining = made.gauge(specs.DRAINING)
        self.adapters = AdapterMetrics(made)
        self.tenants = TenantMetrics(made)
        self.routes = RouteMetrics(made)
        self._phase_s = made.histogram(specs.PHASE_S)
        self._request_s = made.histogram(specs.REQUEST_S)
        self._tpot_s = made.histogram(specs.TPOT_S)
        self._tokens = made.counter(specs.TOKENS_TOTAL)
        self._objective_requests = made.counter(specs.OBJECTIVE_REQUESTS)
        self._objective_misses = made.counter(specs.OBJECTIVE_MISSES)

    def create_series(
        self, service: str, revisions: Iterable[str], *, has_objectives: bool
    ) -> None:
        """Create the counters of rare events at 0, so that `rate` and `increase` see the first event."""
        self.metric_set.create_series(SERVICE_COUNTS, service=service)
        if has_objectives:
            self.metric_set.create_series(OBJECTIVE_COUNTERS, service=service, revision="")
        for revision in revisions:
            self.metric_set.create_series([specs.STREAMS_CUT], service=service, revision=revision)

    def observe_outcome(
        self, service: str, revision: str, outcome: RequestOutcome, trace_id: str = ""
    ) -> None:
        """Count tokens and objectives of a request. revision: of the last engine that was tried."""
        labels = service, revision
        for objective, is_met in (("ttft", outcome.meets_ttft), ("tpot", outcome.meets_tpot)):
            if is_met is not None:
                self._objective_requests.labels(*labels, objective).inc()
                self._objective_misses.labels(*labels, objective).inc(not is_met)
        if outcome.prompt_tokens:
            self._tokens.labels(*labels, "prompt").inc(outcome.prompt_tokens)
            self._tokens.labels(*labels, "output").inc(outcome.output_tokens)
        if outcome.tpot_s is not None:
            self._tpot_s.labels(*labels).observe(outcome.tpot_s, exemplar(trace_id))

    def observe_times(self, service: str, intervals: list[Interval], trace_id: str = "") -> None:
        """Record the phases of a request that has ended."""
        trace_labels = exemplar(trace_id)
        for phase, seconds in seconds_by_phase(intervals).items():
            self._phase_s.labels(service, phase.value).observe(seconds, trace_labels)
        total_s = intervals[-1].end_s - intervals[0].start_s
        self._request_s.labels(service).observe(total_s, trace_labels)

    def remove_stale_tenants(self, tenants: Collection[str]) -> None:
        """Remove the series of all other tenants. tenants: names of those that exist."""
        self.metric_set.remove_others(TENANT.name, tenants)

    def remove_stale_series(
        self,
        revisions: Mapping[str, Set[str]],
        model_routes: Collection[str] = (),
        adapters: Collection[tuple[str, str]] = (),
    ) -> None:
        """Remove the series of all other services, revisions, ModelRoutes and adapters.

        revisions: by the service "namespace/name". adapters: each with its service.
        """
        self.adapters.release_others(adapters)
        self.metric_set.remove_others(specs.MODEL_ROUTE.name, model_routes)

        def is_stale(labels: Mapping[str, str]) -> bool:
            # An empty service counts requests that named no known model, an empty revision those that
            # reached no engine.
            service, revision = labels["service"], labels.get("revision", "")
            if not service:
                return False
            if service not in revisions or (revision and revision not in revisions[service]):
                return True
            adapter = labels.get("adapter", specs.OTHER_ADAPTERS)
            return bool(adapter != specs.OTHER_ADAPTERS and (service, adapter) not in adapters)

        self.metric_set.remove_stale(is_stale)
