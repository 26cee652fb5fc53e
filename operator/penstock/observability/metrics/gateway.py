"""The metrics of the gateway. The label `service` is empty while the service is not known."""

from penstock.core.routing.apis import APIS, BATCH_ROUTES, STORED_RESPONSE_ROUTES
from penstock.core.routing.charge import CHARGES, Ending
from penstock.core.routing.route import FallbackReason
from penstock.observability.metrics.gateway_external import EXTERNAL_METRICS
from penstock.observability.metrics.gateway_tenants import TENANT, TENANT_METRICS
from penstock.observability.metrics.specs import (
    CREDENTIAL,
    OBJECTIVE,
    REVISION,
    SERVICE,
    VERSION,
    Label,
    MetricSpec,
    counter,
    gauge,
    service_counter,
    service_gauge,
    service_histogram,
)

# Upper bounds of a phase, in seconds. Few, as there are six phases of each service.
PHASE_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 10, 40, 160)

WATCHED = Label(
    "resource",
    (
        "externalmodels",
        "inferenceservices",
        "loraadapters",
        "modelroutes",
        "pods",
        "secrets",
        "tenants",
    ),
)
# Routes of lists of models, and all paths that are no route: of both only refused requests are counted.
MODEL_LIST_ROUTES = ("/v1/models", "/v1/models/{name:path}")
OTHER_ROUTE = "other"
ROUTE = Label(
    "route",
    (
        *(api.path for api in APIS),
        *STORED_RESPONSE_ROUTES,
        *BATCH_ROUTES,
        *MODEL_LIST_ROUTES,
        OTHER_ROUTE,
    ),
)
CODE = Label(
    "code", "HTTP statuses that the gateway sends or passes on; 499 if the client disconnected"
)
CAUSE = Label("cause", ("client", "route_timeout", "shutdown", "timeout", "upstream"))
REJECTION = Label(
    "reason",
    (
        "adapter_load_failed", "batch_server", "concurrency", "connections", "context_length_exceeded",
        "credentials_differ", "credentials_expired", "credentials_invalid", "credentials_missing",
        "displaced", "engines_failed", "external_api", "external_key_missing", "external_not_allowed",
        "insufficient_quota", "internal", "invalid_request", "issuer_unavailable", "late_first_token",
        "memory", "model_moved", "model_not_found", "no_endpoint", "no_route", "not_synced", "overloaded",
        "queue_full", "rate_limit_exceeded", "request_above_limit", "response_not_found", "route_broken",
        "route_not_allowed", "route_timeout", "scaled_to_zero", "service_missing", "shutdown", "stalled",
        "tenant_queue_full", "tenant_suspended", "timeout", "token_review_failed", "too_large",
        "too_many_invalid_tokens",
    ),
)  # fmt: skip
RETRY_REASON = Label(
    "reason", tuple(each.value for each in Ending if CHARGES[each].retry != "Never")
)
LEFT_PHASE = Label("phase", ("receiving", "waiting", "first_byte", "streaming"))
PHASE = Label("phase", ("receive", "route", "wait", "connect", "first_byte", "stream"))
MIRRORED = Label("outcome", ("ok", "error", "dropped"))
ENDPOINT_STATE = Label("state", ("available", "ejected", "unready"))
TOKENS = Label("kind", ("prompt", "output"))
MODEL_ROUTE = Label("model_route", "`namespace/name` of the ModelRoutes that exist")
FALLBACK_TARGET = Label(
    "target", "kind and name of the fallback, such as `InferenceService/chat-small`"
)
FALLBACK_REASON = Label("reason", tuple(each.label for each in FallbackReason))
# Adapters with series of their own in one gateway. Services share them (`gateway/limits/shared_limit.py`).
# There may be thousands.
MAX_ADAPTERS = 512
OTHER_ADAPTERS = "other"
ADAPTER = Label(
    "adapter",
    f"names of the first LoraAdapters of each service that had requests, of {MAX_ADAPTERS} in all; "
    f"{OTHER_ADAPTERS}: all further ones",
)

BUILD_INFO = gauge("penstock_gateway_build_info", "1, with the version of Penstock.", VERSION)
REQUESTS = service_counter(
    "penstock_gateway_requests_total", "Requests that arrived for a service."
)
RESPONSES = service_counter(
    "penstock_gateway_responses_total",
    "Responses, by API route and HTTP status; 499: the client disconnected before there was one.",
    REVISION,
    ROUTE,
    CODE,
)
MODEL_ROUTE_REQUESTS = counter(
    "penstock_gateway_model_route_requests_total",
    "Requests that a ModelRoute sent to a service.",
    MODEL_ROUTE,
    SERVICE,
)
FALLBACKS = counter(
    "penstock_gateway_fallbacks_total",
    "Requests that went to a fallback of a ModelRoute, by the reason.",
    MODEL_ROUTE,
    FALLBACK_TARGET,
    FALLBACK_REASON,
)
REJECTIONS = service_counter(
    "penstock_gateway_rejections_total",
    "Requests that the gateway answered with an error of its own.",
    REJECTION,
)
TENANT_REJECTIONS = counter(
    "penstock_gateway_tenant_rejections_total",
    "Requests of tenants that the gateway answered with an error of its own.",
    TENANT,
    REJECTION,
)
OPEN = gauge(
    "penstock_gateway_open",
    "1 while anybody may use the gateway, as the cluster has no Tenant.",
)
RETRIES = service_counter(
    "penstock_gateway_retries_total", "Retries, by the failure of the attempt before.", RETRY_REASON
)
STREAMS_CUT = service_counter(
    "penstock_gateway_streams_cut_total",
    "Responses cut off after their first byte.",
    REVISION,
    CAUSE,
)
DISCONNECTS = service_counter(
    "penstock_gateway_disconnects_total",
    "Requests whose client disconnected, by the phase that they were in.",
    LEFT_PHASE,
)
TOKENS_TOTAL = service_counter(
    "penstock_gateway_tokens_total",
    "Tokens of finished requests. Prompt tokens are estimated where the response has no usage.",
    REVISION,
    TOKENS,
)

OBJECTIVE_REQUESTS = service_counter(
    "penstock_gateway_objective_requests_total",
    "Requests that an objective applies to: those that were shed or failed, and those that finished; for "
    "tpot if they streamed more than one token. The revision is empty if no engine was reached.",
    REVISION,
    OBJECTIVE,
)
OBJECTIVE_MISSES = service_counter(
    "penstock_gateway_objective_misses_total",
    "Requests that missed an objective: late, shed or failed. A response that is no stream misses ttft "
    "if it takes longer than both objectives allow.",
    REVISION,
    OBJECTIVE,
)

IN_FLIGHT = service_gauge(
    "penstock_gateway_requests_in_flight", "Requests that are at an engine.", REVISION
)
WAITING = service_gauge("penstock_gateway_requests_waiting", "Requests that wait for an engine.")
WAIT_S = service_histogram(
    "penstock_gateway_wait_seconds",
    "Time that a request waited for an engine, for requests that had to wait.",
)
FIRST_BYTE_S = service_histogram(
    "penstock_gateway_time_to_first_byte_seconds",
    "Time from a request's arrival to the first byte of its response.",
    REVISION,
)
PHASE_S = service_histogram(
    "penstock_gateway_phase_seconds",
    "Time of each phase of a request, all attempts together. wait: for an endpoint with room. first_byte: "
    "the engine computes. stream: the response is passed on. Only of phases that were reached.",
    PHASE,
    buckets=PHASE_SECONDS,
)
REQUEST_S = service_histogram(
    "penstock_gateway_request_seconds",
    "Time from the head of a request to the end of its response.",
)
TPOT_S = service_histogram(
    "penstock_gateway_time_per_output_token_seconds",
    "Mean time between the tokens of a stream.",
    REVISION,
)

ADAPTER_REQUESTS = service_counter(
    "penstock_gateway_adapter_requests_total", "Requests that arrived for an adapter.", ADAPTER
)
ADAPTER_MISSES = service_counter(
    "penstock_gateway_adapter_misses_total",
    "Requests for an adapter that no engine of the chosen revision had in memory.",
    ADAPTER,
)
ADAPTER_LOADS = service_counter(
    "penstock_gateway_adapter_loads_total",
    "Loads of an adapter that requests waited for and that succeeded.",
    ADAPTER,
)
ADAPTER_LOAD_FAILURES = service_counter(
    "penstock_gateway_adapter_load_failures_total",
    "Loads of an adapter that requests waited for and that failed.",
    ADAPTER,
)
ADAPTER_WAITING = service_gauge(
    "penstock_gateway_adapter_requests_waiting",
    "Requests that wait for an adapter to be loaded.",
    ADAPTER,
)
ADAPTER_LOAD_S = service_histogram(
    "penstock_gateway_adapter_load_seconds",
    "Time of a load of an adapter that requests waited for.",
)

MIRRORED_REQUESTS = service_counter(
    "penstock_gateway_mirrored_requests_total",
    "Copies of mirrored requests. dropped: a limit was reached, or there was no engine.",
    REVISION,
    MIRRORED,
)
MIRRORED_FIRST_BYTE_S = service_histogram(
    "penstock_gateway_mirrored_time_to_first_byte_seconds",
    "Time from sending a copy of a mirrored request to the first byte of its response.",
    REVISION,
)

ENDPOINTS = service_gauge(
    "penstock_gateway_endpoints",
    "Engine pods. ejected: after consecutive failures. unready: they take no new requests.",
    ENDPOINT_STATE,
)
EJECTIONS = service_counter(
    "penstock_gateway_ejections_total", "Ejections of endpoints after consecutive failures."
)

SNAPSHOTS = counter(
    "penstock_gateway_snapshots_total",
    "Changes of the routing snapshot: services, pods and routes.",
)
SNAPSHOT_AGE_S = gauge(
    "penstock_gateway_snapshot_age_seconds",
    "Time since the API server last confirmed the routing snapshot.",
)
WATCH_RESTARTS = counter(
    "penstock_gateway_watch_restarts_total",
    "Watches that failed, or whose version was too old, so that all objects were listed again.",
    WATCHED,
)
CREDENTIAL_EXPIRY = gauge(
    "penstock_gateway_credential_expiry_timestamp_seconds",
    "Time at which a credential for the API server expires, in seconds since the epoch.",
    CREDENTIAL,
)
CONNECTIONS = gauge("penstock_gateway_connections", "Open connections of clients.")
TLS_CERTIFICATE_EXPIRY = gauge(
    "penstock_gateway_tls_certificate_expiry_timestamp_seconds",
    "Time at which the certificate for clients expires, in seconds since the epoch; 0 without TLS.",
)
TLS_RELOAD_FAILURES = counter(
    "penstock_gateway_tls_certificate_reload_failures_total",
    "Changes of the files of the certificate for clients after which it could not be loaded, so that the old "
    "one is kept.",
)
HELD_BODY_BYTES = gauge(
    "penstock_gateway_held_body_bytes",
    "Bytes of the bodies of requests that have no response yet.",
)
HELD_ANSWER_BYTES = gauge(
    "penstock_gateway_held_answer_bytes",
    "Bytes of responses, and of events of streams above 64 KiB, that are held until they are sent.",
)
LOOP_LAG_S = gauge(
    "penstock_gateway_loop_lag_seconds", "Delay of the event loop: how late its last timer ran."
)
DRAINING = gauge(
    "penstock_gateway_draining", "1 while the gateway finishes its requests before it ends."
)

METRICS: tuple[MetricSpec, ...] = (
    BUILD_INFO, REQUESTS, RESPONSES, MODEL_ROUTE_REQUESTS, FALLBACKS, REJECTIONS, TENANT_REJECTIONS, 
    *TENANT_METRICS, *EXTERNAL_METRICS, OPEN, RETRIES, STREAMS_CUT,
    DISCONNECTS, TOKENS_TOTAL, OBJECTIVE_REQUESTS, OBJECTIVE_MISSES, IN_FLIGHT, WAITING, WAIT_S,
    FIRST_BYTE_S, PHASE_S, REQUEST_S, TPOT_S, ADAPTER_REQUESTS, ADAPTER_MISSES, ADAPTER_LOADS,
    ADAPTER_LOAD_FAILURES, ADAPTER_WAITING, ADAPTER_LOAD_S, MIRRORED_REQUESTS, MIRRORED_FIRST_BYTE_S,
    ENDPOINTS, EJECTIONS, SNAPSHOTS, SNAPSHOT_AGE_S, WATCH_RESTARTS,
    CREDENTIAL_EXPIRY, CONNECTIONS, TLS_CERTIFICATE_EXPIRY, TLS_RELOAD_FAILURES, HELD_BODY_BYTES,
    HELD_ANSWER_BYTES, LOOP_LAG_S, DRAINING,
)  # fmt: skip
