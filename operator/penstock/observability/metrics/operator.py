"""The metrics of the operator. Only the leading replica has series with the label `service`."""

from penstock.observability.metrics import operator_labels as label
from penstock.observability.metrics.fetches import MODEL_FETCHES
from penstock.observability.metrics.operator_adapters import OF_ADAPTERS
from penstock.observability.metrics.specs import (
    CALL_S,
    CREDENTIAL,
    OBJECTIVE,
    REVISION,
    VERSION,
    MetricSpec,
    counter,
    gauge,
    histogram,
    service_counter,
    service_gauge,
)

BUILD_INFO = gauge("penstock_operator_build_info", "1, with the version of Penstock.", VERSION)
LEADING = gauge("penstock_operator_leading", "1 while this replica leads.")
RECONCILES = counter(
    "penstock_operator_reconciles_total",
    "Reconciles of services. retry: the service changed meanwhile. error: repeated after a pause.",
    label.OUTCOME,
)
RECONCILE_S = histogram(
    "penstock_operator_reconcile_seconds", "Duration of a reconcile.", buckets=CALL_S
)
QUEUE_DEPTH = gauge("penstock_operator_queue_depth", "Services that wait to be reconciled.")
QUEUE_BACKOFFS = gauge(
    "penstock_operator_queue_backoffs", "Services that wait for a retry after an error."
)
QUEUE_WAIT_S = histogram(
    "penstock_operator_queue_wait_seconds",
    "Time from a change of a service to the start of its reconcile.",
    buckets=CALL_S,
)
WATCH_EVENTS = counter("penstock_operator_watch_events_total", "Events from watches.")
WATCH_RESTARTS = counter(
    "penstock_operator_watch_restarts_total",
    "Watches that failed, or whose version was too old, so that all objects were listed again. "
    "Without those of Kopf, which watches the services.",
    label.WATCHED,
)
API_REQUESTS = counter(
    "penstock_operator_api_requests_total",
    "Requests to the API server, without those of Kopf, which watches the services.",
    label.VERB,
    label.CODE,
)
API_REQUEST_S = histogram(
    "penstock_operator_api_request_seconds",
    "Time until the API server's response began.",
    label.VERB,
    buckets=CALL_S,
)
UNEXPECTED_ERRORS = counter(
    "penstock_operator_unexpected_errors_total",
    "Errors that a loop of the operator did not expect; it went on with the next service.",
    label.LOOP,
)
LOOP_S = histogram(
    "penstock_operator_loop_seconds",
    "Duration of a pass of the scaler, the judge or the placement of adapters over all services.",
    label.PASS,
    buckets=CALL_S,
)
CREDENTIAL_EXPIRY = gauge(
    "penstock_operator_credential_expiry_timestamp_seconds",
    "Time at which a credential for the API server expires, in seconds since the epoch.",
    CREDENTIAL,
)

PROCESS: tuple[MetricSpec, ...] = (
    BUILD_INFO, LEADING, RECONCILES, RECONCILE_S, QUEUE_DEPTH, QUEUE_BACKOFFS, QUEUE_WAIT_S,
    WATCH_EVENTS, WATCH_RESTARTS, API_REQUESTS, API_REQUEST_S, UNEXPECTED_ERRORS, LOOP_S,
    CREDENTIAL_EXPIRY,
)  # fmt: skip

SERVICE_INFO = service_gauge(
    "penstock_operator_service_info",
    "1, with the model name that clients send, the scaling mode and the strategy of the last rollout.",
    label.MODEL,
    label.MODE,
    label.STRATEGY,
)
SPEC_GENERATION = service_gauge(
    "penstock_operator_spec_generation",
    "Generation of the spec. It grows with each change of the spec.",
)
CONDITION_STATUS = service_gauge(
    "penstock_operator_condition",
    "1, with the status of each condition of the service.",
    label.CONDITION,
    label.CONDITION_STATUS,
)

DESIRED_REPLICAS = service_gauge(
    "penstock_operator_desired_replicas",
    "Replicas by the last scaling decision; in mode External those of the spec.",
    label.VARIANT,
)
PROVISIONED_REPLICAS = service_gauge(
    "penstock_operator_provisioned_replicas",
    "Replicas that the Deployments request.",
    REVISION,
    label.VARIANT,
)
REPLICAS = service_gauge(
    "penstock_operator_replicas",
    "Engine pods, ready or not, without those that terminate.",
    REVISION,
    label.VARIANT,
)
READY_REPLICAS = service_gauge(
    "penstock_operator_ready_replicas",
    "Engine pods that are ready, without those that terminate.",
    REVISION,
    label.VARIANT,
)
MIN_REPLICAS = service_gauge("penstock_operator_min_replicas", "spec.scaling.minReplicas.")
MAX_REPLICAS = service_gauge("penstock_operator_max_replicas", "spec.scaling.maxReplicas.")
UNREADY_S = service_gauge(
    "penstock_operator_longest_unready_seconds",
    "Longest time for which one of the engine pods has not been ready; 0 if all are ready.",
)
ACCELERATORS = service_gauge(
    "penstock_operator_accelerators",
    "Accelerators that the engine pods hold.",
    label.VARIANT,
    label.ACCELERATOR,
)
PRICE_PER_HOUR = service_gauge(
    "penstock_operator_price_per_hour",
    "Price of the engine pods per hour: their number times spec.variants[].pricePerHour. Only of "
    "services with variants.",
    label.VARIANT,
)

DECISIONS = service_counter(
    "penstock_operator_scaling_decisions_total",
    "Scaling decisions, one for each pass of the scaler over the service.",
    label.DECISION_REASON,
)
LAST_DECISION_REASON = service_gauge(
    "penstock_operator_scaling_reason",
    "1, with the reason of the last decision.",
    label.DECISION_REASON,
)
SCALE_STEPS = service_counter(
    "penstock_operator_scale_steps_total",
    "Decisions that changed the number of replicas.",
    label.DIRECTION,
)
BLIND = service_gauge(
    "penstock_operator_scaling_blind",
    "1 while replicas, or the last one of an idle service, are held because metrics of engines or gateways "
    "are missing.",
)
AT_MAXIMUM = service_gauge(
    "penstock_operator_scaling_at_maximum",
    "1 while more replicas are needed than spec.scaling.maxReplicas or a quota allows.",
)
UNREADABLE_ENGINES = service_gauge(
    "penstock_operator_unreadable_engines",
    "Ready engines whose metrics could not be read at the last pass.",
)

OBJECTIVE_S = service_gauge(
    "penstock_operator_objective_seconds",
    "The time that the spec allows. Only of objectives that are set.",
    OBJECTIVE,
)
OBJECTIVE_TARGET = service_gauge(
    "penstock_operator_objective_target_ratio",
    "Fraction of requests that must meet the objectives: spec.objectives.attainment.",
)
ATTAINMENT = service_gauge(
    "penstock_operator_attainment_ratio",
    "Fraction of the requests of the last hour that met the objective, as gateways counted them. "
    "Requests that were shed or failed did not.",
    OBJECTIVE,
)
ERROR_BUDGET_LEFT = service_gauge(
    "penstock_operator_error_budget_left_ratio",
    "Fraction of the error budget of the last hour that is left: 1 without a miss, 0 at the target, "
    "below 0 when the objective is missed.",
    OBJECTIVE,
)

ROLLOUT_PHASE = service_gauge(
    "penstock_operator_rollout_phase", "1, with the phase of the rollout.", label.PHASE
)
ROLLOUT_PHASE_START = service_gauge(
    "penstock_operator_rollout_phase_start_timestamp_seconds",
    "Time at which the phase began, in seconds since the epoch.",
)
ROLLOUT_DEADLINE = service_gauge(
    "penstock_operator_rollout_deadline_timestamp_seconds",
    "Time by which the phase should end, or the next of the pods that it starts be ready, in seconds since "
    "the epoch: by maxDuration, progressDeadline and the like. None for a phase without a limit.",
)
ROLLOUT_TRANSITIONS = service_counter(
    "penstock_operator_rollout_transitions_total",
    "Changes of the phase, by the phase that began.",
    label.PHASE,
)
TRAFFIC_WEIGHT = service_gauge(
    "penstock_operator_traffic_weight_ratio",
    "Fraction of the traffic that the revision receives.",
    REVISION,
    label.COHORT,
)
CANARY_E_VALUE = service_gauge(
    "penstock_operator_canary_e_value",
    "e-value of a test: the evidence that the canary is worse. 1 means no evidence.",
    REVISION,
    label.TEST,
)
CANARY_EFFECT = service_gauge(
    "penstock_operator_canary_effect_ratio",
    "Estimated increase on the canary: relative for times and lengths, absolute for fractions of "
    "requests.",
    REVISION,
    label.TEST,
)
CANARY_EFFECT_BOUND = service_gauge(
    "penstock_operator_canary_effect_bound_ratio",
    "Confidence bounds of the effect, as far as they are known.",
    REVISION,
    label.TEST,
    label.BOUND,
)
CANARY_SAMPLES = service_gauge(
    "penstock_operator_canary_samples",
    "Requests that a test has counted.",
    REVISION,
    label.TEST,
    label.ARM,
)
CANARY_GATE = service_gauge(
    "penstock_operator_canary_gate",
    "1, with the state of a metric gate or of the evaluation.",
    label.GATE,
    label.GATE_STATE,
)


SERVICES: tuple[MetricSpec, ...] = (
    SERVICE_INFO, SPEC_GENERATION, CONDITION_STATUS, DESIRED_REPLICAS, PROVISIONED_REPLICAS,
    REPLICAS, READY_REPLICAS, MIN_REPLICAS, MAX_REPLICAS, UNREADY_S, ACCELERATORS,
    PRICE_PER_HOUR, DECISIONS, LAST_DECISION_REASON, SCALE_STEPS, BLIND, AT_MAXIMUM,
    UNREADABLE_ENGINES, OBJECTIVE_S, OBJECTIVE_TARGET, ATTAINMENT, ERROR_BUDGET_LEFT,
    ROLLOUT_PHASE, ROLLOUT_PHASE_START, ROLLOUT_DEADLINE, ROLLOUT_TRANSITIONS, TRAFFIC_WEIGHT,
    CANARY_E_VALUE, CANARY_EFFECT, CANARY_EFFECT_BOUND, CANARY_SAMPLES, CANARY_GATE,
    *MODEL_FETCHES,
)  # fmt: skip

METRICS: tuple[MetricSpec, ...] = PROCESS + SERVICES + OF_ADAPTERS
