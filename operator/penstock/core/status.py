"""What the status says of a service: conditions with reasons, from what is there."""

from dataclasses import dataclass
from typing import Literal

from penstock.core.observed import Observed, ObservedPod, verdict_of
from penstock.core.plan import Plan
from penstock.core.service import REVISION_LABEL, SERVICE_LABEL, Object, ServiceSpec

Truth = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class Condition:
    type: str
    status: Truth
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ScalingReport:
    """The scaler's last word. valid: it rested on metrics."""

    desired: int
    reason: str
    reason_code: str
    valid: bool
    at: str
    trail: tuple[tuple[str, int, str], ...]

    @classmethod
    def of(cls, status: Object) -> "ScalingReport | None":
        """The report that a status holds, so that a new leader need not write it again."""
        scaling = status.get("scaling")
        if scaling is None:
            return None
        conditions = {c["type"]: c for c in status.get("conditions", [])}
        active = conditions.get("ScalingActive", {})
        return cls(
            desired=scaling["desired"],
            reason=scaling["reason"],
            reason_code=active.get("reason", ""),
            valid=active.get("reason") != "MetricsMissing",
            at=scaling["at"],
            trail=tuple((e["step"], e["replicas"], e["note"]) for e in scaling.get("trail", [])),
        )


def rejected(message: str) -> tuple[str, str]:
    """The refusal of a pod that is wrong and stays wrong."""
    text = f"the API server refused the pod template: {message}; see spec.template"
    return "PodTemplateRejected", text


def forbidden(spec: ServiceSpec, message: str) -> tuple[str, str]:
    """The refusal of a pod that rights, quotas or pod security do not allow as they are."""
    text = f"the API server does not allow the pod: {message}"
    if spec.model_uri.startswith("file://"):
        text += (
            "; a file:// model needs a hostPath volume: where those are not allowed, set "
            "spec.model.uri to pvc://CLAIM/PATH"
        )
    return "PodForbidden", text


def invalid(message: str) -> tuple[Condition, ...]:
    """The conditions of a service whose spec cannot be read."""
    bad = Condition("SpecValid", "False", "InvalidSpec", message)
    return (bad, Condition("Ready", "False", "InvalidSpec", message))


def conditions(
    spec: ServiceSpec, observed: Observed, plan: Plan, scaling: ScalingReport | None
) -> tuple[Condition, ...]:
    """In the order of cause and effect; Ready says the first that does not hold."""
    tree = (
        _spec_valid(spec, observed),
        _model_ready(observed, plan),
        _workload_ready(spec, observed, plan),
        _traffic_available(observed, plan),
    )
    return (*tree, _scaling_active(spec, scaling), _ready(tree))


def _spec_valid(spec: ServiceSpec, observed: Observed) -> Condition:
    if observed.name_taken_by is not None:
        message = (
            f"{spec.served_name!r} is served by {observed.name_taken_by} in this namespace already; "
            "set spec.model.servedName to another name"
        )
        return Condition("SpecValid", "False", "ServedNameTaken", message)
    return Condition("SpecValid", "True", "Valid", "the spec can be served")


def _model_ready(observed: Observed, plan: Plan) -> Condition:
    preflight = observed.preflight(plan.revision)
    if preflight is None:
        if observed.deployment(plan.revision) is not None:
            return Condition("ModelReady", "True", "Serving", "the revision has engines")
        if observed.refusal is not None:
            return Condition("ModelReady", "False", *observed.refusal)
        return Condition("ModelReady", "Unknown", "PreflightPending", "the model will be looked at")
    verdict = verdict_of(preflight)
    if verdict is not None:
        return Condition(
            "ModelReady", "True" if verdict.ok else "False", verdict.reason, verdict.message
        )
    if preflight.trouble is not None:
        return Condition("ModelReady", "False", *preflight.trouble)
    return Condition("ModelReady", "Unknown", "PreflightRunning", "the model is being looked at")


def _workload_ready(spec: ServiceSpec, observed: Observed, plan: Plan) -> Condition:
    def said(status: Truth, reason: str, message: str) -> Condition:
        return Condition("WorkloadReady", status, reason, message)

    if observed.refusal is not None:
        return said("False", *observed.refusal)
    deployment = observed.deployment(plan.revision)
    if deployment is None:
        return said("False", "NoEngines", f"revision {plan.revision} has no engines yet")
    pods = observed.serving(plan.revision)
    if trouble := _worst_trouble(pods):
        return said("False", *trouble)
    ready = sum(pod.is_ready for pod in pods)
    wanted = deployment.replicas
    if ready >= min(wanted, spec.scaling.min_replicas) and ready > 0:
        return said("True", "EnginesReady", f"revision {plan.revision} has the engines it needs")
    if deployment.trouble is not None:
        return said("False", *deployment.trouble)
    return said("False", "Progressing", f"{ready} of {wanted} engines are ready")


def _worst_trouble(pods: tuple[ObservedPod, ...]) -> tuple[str, str] | None:
    """Of pods that cannot go on; a pod that is ready hides the trouble of one beside it."""
    if any(pod.is_ready for pod in pods):
        return None
    return next((pod.trouble for pod in sorted(pods, key=_by_name) if pod.trouble), None)


def _by_name(pod: ObservedPod) -> str:
    return pod.name


def _traffic_available(observed: Observed, plan: Plan) -> Condition:
    if plan.stable is None:
        return Condition("TrafficAvailable", "False", "NoRevision", "no revision has served yet")
    if any(pod.is_ready for pod in observed.serving(plan.stable)):
        message = f"revision {plan.stable} takes traffic"
        return Condition("TrafficAvailable", "True", "Serving", message)
    message = f"no engine of revision {plan.stable} is ready"
    return Condition("TrafficAvailable", "False", "NoEngineReady", message)


def _scaling_active(spec: ServiceSpec, scaling: ScalingReport | None) -> Condition:
    if spec.scaling.mode == "External":
        return Condition("ScalingActive", "False", "External", "spec.replicas counts")
    if scaling is None:
        return Condition("ScalingActive", "Unknown", "NoDecision", "no decision has been made yet")
    if not scaling.valid:
        return Condition("ScalingActive", "False", scaling.reason_code, scaling.reason)
    if spec.scaling.mode == "Shadow":
        return Condition("ScalingActive", "True", "Shadow", "decisions are recorded, not applied")
    return Condition("ScalingActive", "True", "Active", "decisions rest on the engines' metrics")


def _ready(tree: tuple[Condition, ...]) -> Condition:
    failing = next((c for c in tree if c.status != "True"), None)
    if failing is None:
        return Condition("Ready", "True", "Ready", "the service answers")
    return Condition("Ready", "False", failing.reason, failing.message)


def render(
    spec: ServiceSpec,
    observed: Observed,
    plan: Plan,
    scaling: ScalingReport | None,
    previous: Object,
    now: str,
) -> Object:
    """The whole status; `previous` keeps the times of conditions that did not change."""
    pods = observed.serving(plan.stable)
    status: Object = {
        "observedGeneration": spec.generation,
        "servedName": spec.served_name,
        "stableRevision": plan.stable,
        "candidateRevision": plan.candidate,
        "traffic": [{"revision": plan.stable, "weight": 100}] if plan.stable else [],
        "replicas": len(pods),
        "readyReplicas": sum(pod.is_ready for pod in pods),
        "selector": (
            f"{SERVICE_LABEL}={spec.name},{REVISION_LABEL}={plan.stable}" if plan.stable else ""
        ),
        "conditions": as_objects(
            conditions(spec, observed, plan, scaling), previous, spec.generation, now
        ),
    }
    if scaling is not None:
        status["scaling"] = {
            "desired": scaling.desired,
            "reason": scaling.reason,
            "at": scaling.at,
            "trail": [{"step": s, "replicas": r, "note": n} for s, r, n in scaling.trail],
        }
    return status


def as_objects(
    tree: tuple[Condition, ...], previous: Object, generation: int, now: str
) -> list[Object]:
    known = {c["type"]: c for c in previous.get("conditions", [])}
    return [
        {
            "type": c.type,
            "status": c.status,
            "reason": c.reason,
            "message": c.message[:1000],
            "lastTransitionTime": (
                known[c.type]["lastTransitionTime"]
                if c.type in known and known[c.type]["status"] == c.status
                else now
            ),
            "observedGeneration": generation,
        }
        for c in tree
    ]


def notable(before: Object, after: Object) -> list[tuple[str, str, str]]:
    """What deserves an Event: (Normal or Warning, reason, message)."""
    found = []
    ready = {c["type"]: c for c in after.get("conditions", [])}.get("Ready")
    was = {c["type"]: c for c in before.get("conditions", [])}.get("Ready", {})
    if ready and (ready["status"], ready["reason"]) != (was.get("status"), was.get("reason")):
        kind = "Normal" if ready["status"] == "True" else "Warning"
        found.append((kind, ready["reason"], ready["message"]))
    scaling, had = after.get("scaling"), before.get("scaling", {})
    if scaling and scaling["desired"] != had.get("desired", scaling["desired"]):
        up = scaling["desired"] > had["desired"]
        message = f"{had['desired']} -> {scaling['desired']} replicas: {scaling['reason']}"
        found.append(("Normal", "ScaledUp" if up else "ScaledDown", message))
    return found
