"""Gateway: requests by outcome, phases of their time, endpoints, and the gateway processes."""

from grafana_foundation_sdk.models import units

from penstock.observability.dashboards import variables
from penstock.observability.dashboards.board import Board, Row
from penstock.observability.dashboards.panels import Panel, areas, series
from penstock.observability.dashboards.promql import PROCESSES, SERVICES, Scope
from penstock.observability.metrics import batch, gateway_tenants
from penstock.observability.metrics import gateway as metrics

# Requests of no service that exists have an empty label.
UNKNOWN_TOO = Scope(())
SERVICE_OR_NONE = 'service=~"$service|"'
POD = "{{pod}}"


def board() -> Board:
    return Board(
        "gateway",
        "Gateway",
        "Requests by outcome, where their time goes, the engines that they are sent to, and the gateways.",
        (variables.datasource(), variables.namespace(), variables.service()),
        (_requests(), _tenants(), _batches(), _time(), _endpoints(), _processes()),
    )


def _requests() -> Row:
    return Row("Requests", *_responses(), *_load())


def _responses() -> tuple[Panel, ...]:
    """Panels of what the gateway answered."""
    return (
        areas(
            "Responses by code",
            "Responses by HTTP status. 499: the client disconnected before there was one.",
            units.RequestsPerSecond,
            UNKNOWN_TOO.rate(metrics.RESPONSES, "service, code", SERVICE_OR_NONE),
        ),
        areas(
            "Responses by API",
            "Responses by the route of the API.",
            units.RequestsPerSecond,
            UNKNOWN_TOO.rate(metrics.RESPONSES, "route", SERVICE_OR_NONE),
        ),
        series(
            "Rejections",
            "Requests that the gateway answered with an error of its own, by reason. The service is "
            "empty if it is not known.",
            units.RequestsPerSecond,
            UNKNOWN_TOO.rate(metrics.REJECTIONS, "service, reason", SERVICE_OR_NONE),
        ),
    )


def _load() -> tuple[Panel, ...]:
    """Panels of what passes through the gateway."""
    return (
        series(
            "Requests in flight and waiting",
            "Requests that are at an engine, and those that wait for one.",
            units.Short,
            (SERVICES.sum(metrics.IN_FLIGHT, "service"), "{{service}} in flight"),
            (SERVICES.sum(metrics.WAITING, "service"), "{{service}} waiting"),
        ),
        series(
            "Tokens",
            "Tokens of finished requests.",
            units.CountsPerSecond,
            SERVICES.rate(metrics.TOKENS_TOTAL, "service, kind"),
        ),
        series(
            "Requests of ModelRoutes",
            "Requests that a ModelRoute sent to each service.",
            units.RequestsPerSecond,
            (
                SERVICES.rate(metrics.MODEL_ROUTE_REQUESTS, "model_route, service"),
                "{{model_route}} to {{service}}",
            ),
        ),
    )


def _tenants() -> Row:
    return Row(
        "Tenants",
        series(
            "Rejections of tenants",
            "Requests of each tenant that the gateway answered with an error of its own, by reason: limits, "
            "full queues, suspension.",
            units.RequestsPerSecond,
            PROCESSES.rate(metrics.TENANT_REJECTIONS, "tenant, reason"),
        ),
        series(
            "Requests of tenants",
            "Requests that an engine has worked for, by tenant.",
            units.RequestsPerSecond,
            PROCESSES.rate(gateway_tenants.TENANT_REQUESTS, "tenant"),
        ),
        series(
            "Tokens of tenants",
            "Tokens that count for limits and the ledger of usage. cached: a part of the prompt's.",
            units.CountsPerSecond,
            PROCESSES.rate(gateway_tenants.TENANT_TOKENS, "tenant, kind"),
        ),
        series(
            "Limits of tenants",
            "Part of each limit that is used in its present window, by the gateway that knows of most.",
            units.PercentUnit,
            PROCESSES.max(gateway_tenants.TENANT_LIMIT_USED, "tenant, limit"),
        ),
        series(
            "Store of limits",
            "Calls that failed, per second. A gateway that does not reach it has its share of each limit.",
            units.EventsPerSecond,
            PROCESSES.rate(gateway_tenants.QUOTA_STORE_FAILURES, "pod"),
        ),
        series(
            "Open gateways",
            "1 while anybody may use the gateway, as the cluster has no Tenant.",
            units.Short,
            PROCESSES.max(metrics.OPEN, "pod"),
        ),
    )


def _batches() -> Row:
    return Row(
        "Batches",
        series(
            "Lines of batches",
            "Lines that got a result, and attempts that are repeated.",
            units.EventsPerSecond,
            PROCESSES.rate(batch.LINES, "outcome"),
        ),
        series(
            "Batches that have not ended",
            "By their status.",
            units.Short,
            PROCESSES.sum(batch.BATCHES, "status"),
        ),
        series(
            "Lines at the gateway",
            "Lines that are at the gateway now.",
            units.Short,
            PROCESSES.sum(batch.RUNNING_LINES, "pod"),
        ),
        series(
            "Age of the oldest batch",
            "Time since the creation of the oldest batch that has not ended. After 24 hours it expires.",
            units.Seconds,
            PROCESSES.max(batch.OLDEST_AGE, "namespace"),
        ),
    )


def _time() -> Row:
    return Row("Time", *_durations(), *_ended_early())


def _durations() -> tuple[Panel, ...]:
    """Panels of where the time of a request goes."""
    return (
        areas(
            "Phases, mean",
            "Mean time of each phase of a request. wait: for an endpoint with room. first_byte: the "
            "engine computes. stream: the response is passed on.",
            units.Seconds,
            SERVICES.mean(metrics.PHASE_S, "service, phase"),
        ),
        series(
            "Phases, p95",
            "95th percentile of the same phases.",
            units.Seconds,
            SERVICES.quantile(0.95, metrics.PHASE_S, "service, phase"),
        ),
        series(
            "Time of a request",
            "From a request's arrival to the end of its response.",
            units.Seconds,
            (SERVICES.quantile(0.5, metrics.REQUEST_S, "service"), "{{service}} p50"),
            (SERVICES.quantile(0.95, metrics.REQUEST_S, "service"), "{{service}} p95"),
        ),
        series(
            "Queueing time",
            "Time that queued requests waited for an engine. Requests that were not queued are left out.",
            units.Seconds,
            (SERVICES.quantile(0.5, metrics.WAIT_S, "service"), "{{service}} p50"),
            (SERVICES.quantile(0.95, metrics.WAIT_S, "service"), "{{service}} p95"),
        ),
    )


def _ended_early() -> tuple[Panel, ...]:
    """Panels of requests that ended before their response did."""
    return (
        series(
            "Clients that disconnected",
            "Requests whose client disconnected, by the phase that they were in.",
            units.RequestsPerSecond,
            SERVICES.rate(metrics.DISCONNECTS, "service, phase"),
        ),
        series(
            "Streams cut off",
            "Responses cut off after their first byte, by cause.",
            units.RequestsPerSecond,
            SERVICES.rate(metrics.STREAMS_CUT, "service, revision, cause"),
        ),
    )


def _endpoints() -> Row:
    return Row(
        "Endpoints",
        areas(
            "Endpoints by state",
            "Engine pods as the gateways see them, as a mean over the gateways. ejected: left out "
            "after consecutive failures. unready: they take no new requests.",
            units.Short,
            (
                f"avg by (service, state) ({SERVICES.select(metrics.ENDPOINTS)})",
                "{{service}} {{state}}",
            ),
        ),
        series(
            "Ejections",
            "Endpoints that were left out after consecutive failures, since the gateways started.",
            units.Short,
            SERVICES.sum(metrics.EJECTIONS, "service"),
        ),
        series(
            "Retries",
            "Attempts at another engine, by the failure of the attempt before.",
            units.EventsPerSecond,
            SERVICES.rate(metrics.RETRIES, "service, reason"),
        ),
    )


def _processes() -> Row:
    return Row("Gateway processes", *_work(), *_watching())


def _work() -> tuple[Panel, ...]:
    """Panels of what the processes hold, and whether they keep up."""
    return (
        series(
            "Connections of clients",
            "Open connections of clients.",
            units.Short,
            PROCESSES.sum(metrics.CONNECTIONS, "pod"),
        ),
        series(
            "Bodies held in memory",
            "Bytes of requests without a response, and of responses that are not complete.",
            units.BytesIEC,
            (PROCESSES.sum(metrics.HELD_BODY_BYTES, "pod"), f"{POD} requests"),
            (PROCESSES.sum(metrics.HELD_ANSWER_BYTES, "pod"), f"{POD} responses"),
        ),
        series(
            "Delay of the event loop",
            "How late the last timer ran. Above some 50 ms the gateway has too little CPU.",
            units.Seconds,
            PROCESSES.max(metrics.LOOP_LAG_S, "pod"),
        ),
    )


def _watching() -> tuple[Panel, ...]:
    """Panels of what the processes know of the cluster."""
    return (
        series(
            "Age of the routing snapshot",
            "Time since the API server last confirmed the objects that requests are routed by.",
            units.Seconds,
            PROCESSES.max(metrics.SNAPSHOT_AGE_S, "pod"),
        ),
        series(
            "Changes of the routing snapshot",
            "New routing snapshots, and watches that were started again.",
            units.EventsPerSecond,
            (PROCESSES.rate(metrics.SNAPSHOTS, "pod"), f"{POD} changes"),
            (
                PROCESSES.rate(metrics.WATCH_RESTARTS, "pod, resource"),
                f"{POD} watch of {{{{resource}}}} again",
            ),
        ),
        series(
            "Time until credentials expire",
            "Time until a credential for the API server expires.",
            units.Seconds,
            (
                f"{PROCESSES.max(metrics.CREDENTIAL_EXPIRY, 'pod, credential')} - time()",
                f"{POD} {{{{credential}}}}",
            ),
        ),
    )
