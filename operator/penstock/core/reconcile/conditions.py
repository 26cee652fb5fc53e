"""Computes the status conditions of a service, with reasons and messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.core.observed.children import Observed, ObservedPod, preflight_result
from penstock.core.observed.rollout_state import Rejection
from penstock.core.reconcile.plan import Plan
from penstock.core.scaling.report import ScalingReport
from penstock.core.spec.service import Object, ServiceSpec

Truth = Literal["True", "False", "Unknown"]

# The reason of a service that has no engines because the spec wants none.
SCALED_TO_ZERO = "ScaledToZero"


@dataclass(frozen=True, slots=True)
class Condition:
    """A Kubernetes status condition without its times."""

    type: str
    status: Truth
    reason: str
    message: str


def rejected(kind: str, message: str) -> tuple[str, str]:
    """(reason, message) for an object that the API server refused as invalid (HTTP 422)."""
    field = "spec.rollout.canary.evaluation" if kind == "Job" else "spec.template"
    text = f"the API server refused the pod template: {message}; see {field}"
    return "PodTemplateRejected", text


def forbidden(spec: ServiceSpec, message: str) -> tuple[str, str]:
    """(reason, message) for a pod that RBAC, a quota or pod security forbids (HTTP 403)."""
    text = f"the API server does not allow the pod: {message}"
    if spec.model_uri.startswith("file://"):
        text += (
            "; a file:// model needs a hostPath volume: where those are not allowed, set "
            "spec.model.uri to pvc://CLAIM/PATH"
        )
    return "PodForbidden", text


def invalid(message: str) -> tuple[Condition, ...]:
    """The conditions of a service whose spec cannot be read."""
    return (
        Condition("SpecValid", "False", "InvalidSpec", message),
        Condition("Stalled", "True", "InvalidSpec", message),
        Condition("Ready", "False", "InvalidSpec", message),
    )


def conditions(
    spec: ServiceSpec,
    observed: Observed,
    plan: Plan,
    scaling: ScalingReport | None,
    gates: Sequence[Object] = (),
) -> tuple[Condition, ...]:
    """All conditions, causes before effects; Ready reports the first that does not hold.

    gates: metric gates of a canary, in the status's format.
    """
    coming = plan.rollout.revision or plan.rollout.stable or plan.revision
    tree = (
        _spec_valid(spec, observed),
        _model_ready(observed, coming),
        _workload_ready(spec, observed, coming),
        _traffic_available(spec, observed, plan),
        _rolled_out(plan),
    )
    stalled = _stalled(tree, observed, plan, coming)
    scaled = _scaling_active(spec, scaling)
    return (*tree, *_metrics_readable(gates), scaled, stalled, _ready(tree))


def _spec_valid(spec: ServiceSpec, observed: Observed) -> Condition:
    if observed.name_taken_by is not None:
        message = (
            f"{spec.model_name!r} is served by {observed.name_taken_by} in this namespace already; "
            "set spec.model.name to another name"
        )
        return Condition("SpecValid", "False", "ServedNameTaken", message)
    return Condition("SpecValid", "True", "Valid", "the spec can be served")


def _model_ready(observed: Observed, revision: str) -> Condition:
    preflight = observed.preflight(revision)
    if preflight is None:
        if observed.deployment(revision) is not None:
            return Condition("ModelReady", "True", "Serving", "the revision has engines")
        if revision in observed.refusals:
            return Condition("ModelReady", "False", *observed.refusals[revision])
        return Condition(
            "ModelReady", "Unknown", "PreflightPending", "the model has not been checked yet"
        )
    verdict = preflight_result(preflight)
    if verdict is not None:
        return Condition(
            "ModelReady", "True" if verdict.ok else "False", verdict.reason, verdict.message
        )
    if preflight.lost:
        message = f"the preflight was lost with its node and is replaced: {preflight.lost}"
        return Condition("ModelReady", "Unknown", "PreflightLost", message)
    if preflight.trouble is not None:
        return Condition("ModelReady", "False", *preflight.trouble)
    return Condition("ModelReady", "Unknown", "PreflightRunning", "the model is being checked")


def _workload_ready(spec: ServiceSpec, observed: Observed, revision: str) -> Condition:
    def condition(status: Truth, reason: str, message: str) -> Condition:
        return Condition("WorkloadReady", status, reason, message)

    if revision in observed.refusals:
        return condition("False", *observed.refusals[revision])
    if _is_scaled_to_zero(spec):
        return condition("True", SCALED_TO_ZERO, "spec.replicas is 0: no engine is wanted")
    deployment = observed.deployment(revision)
    if deployment is None:
        return condition("False", "NoEngines", f"revision {revision} has no engines yet")
    pods = observed.serving(revision)
    if trouble := _worst_trouble(pods):
        return condition("False", *trouble)
    ready = sum(pod.is_ready for pod in pods)
    wanted = observed.replicas(revision)
    if ready >= min(wanted, spec.scaling.min_replicas) and ready > 0:
        return condition("True", "EnginesReady", f"revision {revision} has the engines it needs")
    for each in observed.deployments_of(revision).values():
        if each.trouble is not None:
            return condition("False", *each.trouble)
    return condition("False", "Progressing", f"{ready} of {wanted} engines are ready")


def _worst_trouble(pods: tuple[ObservedPod, ...]) -> tuple[str, str] | None:
    """(reason, message) of the first failing pod by name; None if any pod is ready."""
    if any(pod.is_ready for pod in pods):
        return None
    return next((pod.trouble for pod in sorted(pods, key=_by_name) if pod.trouble), None)


def _by_name(pod: ObservedPod) -> str:
    return pod.name


def _is_scaled_to_zero(spec: ServiceSpec) -> bool:
    return spec.scaling.mode == "External" and spec.external_replicas == 0


def _traffic_available(spec: ServiceSpec, observed: Observed, plan: Plan) -> Condition:
    revisions = sorted({share.side.revision for share in plan.shares})
    if not revisions:
        return Condition("TrafficAvailable", "False", "NoRevision", "no revision can serve yet")
    named = " and ".join(revisions)
    if any(observed.ready(revision) for revision in revisions):
        verb = "receives" if len(revisions) == 1 else "receive"
        return Condition("TrafficAvailable", "True", "Serving", f"revision {named} {verb} traffic")
    if _is_scaled_to_zero(spec):
        message = "spec.replicas is 0: no engine answers requests"
        return Condition("TrafficAvailable", "False", SCALED_TO_ZERO, message)
    message = f"no engine of revision {named} is ready"
    return Condition("TrafficAvailable", "False", "NoEngineReady", message)


def _rolled_out(plan: Plan) -> Condition:
    state = plan.rollout
    rejection = _rejection(plan)
    if rejection is not None:
        message = f"revision {rejection.revision} was rejected: {rejection.reason}"
        return Condition("RolledOut", "False", "Rejected", message)
    if state.is_calm and state.stable == plan.revision:
        message = f"revision {state.stable} receives all traffic"
        return Condition("RolledOut", "True", "Stable", message)
    if state.is_calm:  # the spec changed at the end of a rollout; the next rollout starts
        message = f"the spec asks for revision {plan.revision}; revision {state.stable} serves"
        return Condition("RolledOut", "False", "RevisionPending", message)
    message = f"{state.reason}; {plan.lagging_gateway}" if plan.lagging_gateway else state.reason
    return Condition("RolledOut", "False", state.phase, message)


def _rejection(plan: Plan) -> Rejection | None:
    """The rejection of the revision that the spec asks for; None if it was not rejected."""
    state = plan.rollout
    rejected = state.rejected if state.phase == "Rejected" else None
    return rejected if rejected is not None and rejected.revision == plan.revision else None


def _metrics_readable(gates: Sequence[Object]) -> tuple[Condition, ...]:
    """The condition MetricsReadable, for a canary with metric gates; none for others.

    A canary waits while its metrics cannot be read, so users need to see this.
    """
    metrics = [gate for gate in gates if gate["kind"] == "Metric"]
    unread = [f"{m['name']}: {m['message']}" for m in metrics if m["state"] == "Unreadable"]
    if unread:
        return (Condition("MetricsReadable", "False", "MetricUnreadable", "; ".join(unread)),)
    if metrics:
        message = "the metrics of the canary can be read"
        return (Condition("MetricsReadable", "True", "Readable", message),)
    return ()


def _stalled(
    tree: tuple[Condition, ...], observed: Observed, plan: Plan, revision: str
) -> Condition:
    """The condition Stalled: only a change of the spec can help (kstatus; Flux, Argo CD: a failure)."""
    preflight = observed.preflight(revision)
    verdict = preflight_result(preflight) if preflight else None
    is_refused = revision in observed.refusals or (verdict is not None and not verdict.ok)
    is_of_the_spec = revision == plan.revision
    is_rejected = _rejection(plan) is not None
    if (is_refused and is_of_the_spec) or observed.name_taken_by is not None or is_rejected:
        first = next(c for c in tree if c.status != "True")
        return Condition("Stalled", "True", first.reason, first.message)
    return Condition("Stalled", "False", "Progressing", "no change of the spec is required")


def _scaling_active(spec: ServiceSpec, scaling: ScalingReport | None) -> Condition:
    if spec.scaling.mode == "External":
        return Condition(
            "ScalingActive", "False", "External", "spec.replicas sets the number of engines"
        )
    if scaling is None:
        return Condition("ScalingActive", "Unknown", "NoDecision", "no decision has been made yet")
    if not scaling.valid:
        return Condition("ScalingActive", "False", scaling.reason_code, scaling.reason)
    if spec.scaling.mode == "DryRun":
        return Condition("ScalingActive", "True", "DryRun", "decisions are recorded, not applied")
    return Condition(
        "ScalingActive", "True", "Active", "decisions are based on the engines' metrics"
    )


def _ready(tree: tuple[Condition, ...]) -> Condition:
    wanting = [c for c in tree if c.status != "True"]
    failing = next((c for c in wanting if c.reason != SCALED_TO_ZERO), None)
    if failing is None and wanting:
        return Condition("Ready", "True", SCALED_TO_ZERO, wanting[0].message)
    if failing is None:
        return Condition("Ready", "True", "Ready", "the service answers requests")
    return Condition("Ready", "False", failing.reason, failing.message)
