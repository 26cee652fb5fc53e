"""Renders the status of a service."""

from collections.abc import Sequence

from penstock.core.formats.conditions import conditions_by_type
from penstock.core.observed.children import ObservedState
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.rollout_phases import PHASES
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.observed.stored_status import COHORT_NAMES
from penstock.core.reconcile.condition_types import ACCESS_CONTROLLED, TYPES, Condition
from penstock.core.reconcile.conditions import conditions
from penstock.core.reconcile.engine_status import engine_status
from penstock.core.reconcile.model_status import model_status
from penstock.core.reconcile.plan import Plan
from penstock.core.reconcile.refused_conditions import refused_conditions
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import RolloutMirror, Share
from penstock.core.scaling.report import ScalingReport
from penstock.core.scaling.signals import EngineReading
from penstock.core.spec.refusal import Refusal
from penstock.core.spec.service import ROLE_LABEL, SERVE, SERVICE_LABEL, Object, ServiceSpec

# Evaluation Job state -> state of its gate in the status.
JOB_STATES = {"Running": "Waiting", "Passed": "Passing", "Failed": "Failed"}


def render(
    spec: ServiceSpec,
    observed: ObservedState,
    plan: Plan,
    scaling: ScalingReport | None,
    previous: Object,
    now: str,
    evidence: Sequence[Object] | None = None,
    metrics: Sequence[Object] | None = None,
    *,
    gateway_url: str,
    readings: Sequence[EngineReading] = (),
) -> Object:
    """The whole status.

    previous: the status so far, which gives the transition times of unchanged conditions. now: RFC 3339.
    evidence: the judge's statistics by test; metrics: states of the user's metric gates. None: the
    previous ones stay. gateway_url: the base URL of the OpenAI API, within the cluster. readings:
    metrics of the engines of the spec's revision.
    """
    state = plan.rollout
    gates = _gates(observed, state, previous, metrics)
    shown = _kept("evidence", state, previous) if evidence is None else list(evidence)
    current = conditions(spec, observed, plan, scaling, gates)
    return {
        "observedGeneration": spec.generation,
        "url": gateway_url,
        "addresses": [{"url": gateway_url}],
        "modelName": spec.model_name,
        "model": model_status(observed, plan.revision),
        "stableRevision": state.stable,
        "candidateRevision": state.revision,
        "traffic": as_traffic(plan.shares),
        "mirror": plan.mirror and _as_mirror(plan.mirror),
        "trafficGeneration": plan.generation,
        "rollout": state.as_object() | {"evidence": shown, "gates": gates},
        "engine": engine_status(spec, observed.preflights(plan.revision), previous, readings),
        "desiredReplicas": plan.total,
        **replica_counts(observed),
        "variants": _variants(spec, observed.engines()),
        # The scale subresource: an autoscaler averages the pods that it counts.
        "selector": f"{SERVICE_LABEL}={spec.name},{ROLE_LABEL}={SERVE}",
        "conditions": as_objects(current, previous, spec.generation, now),
        **_scaling(spec, scaling),
    }


def render_refused(
    refusal: Refusal, spec: ServiceSpec, observed: ObservedState, previous: Object, now: str
) -> Object:
    """The fields of the status that change while the spec is refused: conditions and numbers of pods.

    spec: as far as it could be read. The other arguments are those of `render`.
    """
    known = set(conditions_by_type(previous))
    current = refused_conditions(refusal, spec, observed, known)
    return {
        "observedGeneration": spec.generation,
        **replica_counts(observed),
        "conditions": as_objects(current, previous, spec.generation, now),
    }


def replica_counts(observed: ObservedState) -> dict[str, int]:
    """The numbers of engine pods, of all revisions, and of those that are ready."""
    pods = observed.engines()
    return {"replicas": len(pods), "readyReplicas": sum(pod.is_ready for pod in pods)}


def _scaling(spec: ServiceSpec, scaling: ScalingReport | None) -> Object:
    """The field `scaling`. None removes it, so no old decision is applied after a change of the mode."""
    if spec.scaling.mode == "External":
        return {"scaling": None}
    if scaling is None:
        return {}
    return {
        "scaling": {
            "desiredReplicas": scaling.desired,
            "message": scaling.reason,
            "startupSeconds": scaling.startup_s,
            "lastScaleTime": scaling.at,
            "trail": [{"step": s, "replicas": r, "note": n} for s, r, n in scaling.trail],
            "variants": [{"name": v, "replicas": n} for v, n in scaling.by_variant.items()],
        }
    }


def _variants(spec: ServiceSpec, pods: Sequence[ObservedPod]) -> list[Object]:
    """Numbers of pods of the spec's variants, and of removed ones that still have pods."""
    names = dict.fromkeys(variant.name for variant in spec.variants)
    names |= dict.fromkeys(sorted(pod.variant for pod in pods if pod.variant))
    return [
        {
            "name": name,
            "replicas": sum(pod.variant == name for pod in pods),
            "readyReplicas": sum(pod.variant == name and pod.is_ready for pod in pods),
        }
        for name in names
    ]


def as_traffic(shares: Sequence[Share]) -> list[Object]:
    """Traffic shares in the status's format."""
    return [_as_target(share.side) | {"percent": share.percent} for share in shares]


def _as_target(side: Side) -> Object:
    return {"revision": side.revision, "cohort": COHORT_NAMES[side.cohort]}


def _as_mirror(mirror: RolloutMirror) -> Object:
    return {"percent": mirror.percent, "targets": [_as_target(side) for side in mirror.targets]}


def _kept(field: str, state: RolloutState, previous: Object) -> list[Object]:
    """A rollout field of the previous status; empty once another rollout has started."""
    if PHASES[state.phase].is_first:
        return []
    kept: list[Object] = (previous.get("rollout") or {}).get(field, [])
    return kept


def _gates(
    observed: ObservedState, state: RolloutState, previous: Object, metrics: Sequence[Object] | None
) -> list[Object]:
    """States of the user's metric gates and of the evaluation."""
    kept = _kept("gates", state, previous)
    found = [gate for gate in kept if gate["kind"] == "Metric"] if metrics is None else [*metrics]
    job = observed.evaluation(state.revision)
    if job is None:
        return found + [gate for gate in kept if gate["kind"] == "Evaluation"]
    message = "it is running" if job.state == "Running" else observed.report(job)
    gate_state = JOB_STATES[job.state]
    gate = {"name": job.name, "kind": "Evaluation", "state": gate_state, "message": message}
    return [*found, gate]


def as_objects(
    conditions: tuple[Condition, ...], previous: Object, generation: int, now: str
) -> list[Object]:
    """Conditions in the status's format, followed by those of other writers.

    A transition time changes only with the condition's status.
    """
    known = conditions_by_type(previous)

    def transition_time(condition: Condition) -> str:
        old = known.get(condition.type, {})
        return str(old["lastTransitionTime"]) if old.get("status") == condition.status else now

    own = [
        c.as_object() | {"lastTransitionTime": transition_time(c), "observedGeneration": generation}
        for c in conditions
    ]
    # The condition about tenants stays while they are unknown, as after a start of the operator.
    ours = {*TYPES} - {ACCESS_CONTROLLED} | {c.type for c in conditions}
    return own + [condition for name, condition in known.items() if name not in ours]
