"""Renders the status of a service, and the Events for its changes."""

from collections.abc import Iterator, Sequence

from penstock.core.observed.children import ObservedState
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.observed.stored_status import COHORT_NAMES, COHORTS
from penstock.core.reconcile.condition import TYPES, Condition
from penstock.core.reconcile.conditions import conditions
from penstock.core.reconcile.plan import Plan
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import RolloutMirror, Share
from penstock.core.scaling.report import ScalingReport
from penstock.core.spec.service import ROLE_LABEL, SERVE, SERVICE_LABEL, Object, ServiceSpec

# Evaluation Job state -> state of its gate in the status.
JOB_STATES = {"Running": "Waiting", "Passed": "Passing", "Failed": "Failed"}

# Reasons of a service that does not answer yet or any more, but is on its way: nobody has to act.
STARTING_UP = (
    "PreflightPending", "PreflightRunning", "PreflightLost", "NoEngines", "Progressing", "NoRevision",
)  # fmt: skip


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
) -> Object:
    """The whole status.

    previous: the status so far, which gives the transition times of unchanged conditions. now: RFC 3339.
    evidence: the judge's statistics by test; metrics: states of the user's metric gates. None: the
    previous ones stay. gateway_url: the base URL of the OpenAI API, within the cluster.
    """
    state = plan.rollout
    gates = _gates(observed, state, previous, metrics)
    pods = [pod for pod in observed.pods if pod.role == SERVE and not pod.is_ending]
    status: Object = {
        "observedGeneration": spec.generation,
        "url": gateway_url,
        "addresses": [{"url": gateway_url}],
        "modelName": spec.model_name,
        "stableRevision": state.stable,
        "candidateRevision": state.revision,
        "traffic": as_traffic(plan.shares),
        "mirror": plan.mirror and _as_mirror(plan.mirror),
        "trafficGeneration": plan.generation,
        "rollout": state.as_object()
        | {
            "evidence": _kept("evidence", state, previous) if evidence is None else list(evidence),
            "gates": gates,
        },
        "engine": _engine(spec),
        "desiredReplicas": plan.total,
        "replicas": len(pods),
        "readyReplicas": sum(pod.is_ready for pod in pods),
        "variants": [
            {
                "name": name,
                "replicas": sum(pod.variant == name for pod in pods),
                "readyReplicas": sum(pod.variant == name and pod.is_ready for pod in pods),
            }
            for name in _variants(spec, pods)
        ],
        # The scale subresource: an autoscaler averages the pods that it counts.
        "selector": f"{SERVICE_LABEL}={spec.name},{ROLE_LABEL}={SERVE}",
        "conditions": as_objects(
            conditions(spec, observed, plan, scaling, gates), previous, spec.generation, now
        ),
    }
    if spec.scaling.mode == "External":
        status["scaling"] = None  # an old decision must not be applied after a change of the mode
    elif scaling is not None:
        status["scaling"] = {
            "desiredReplicas": scaling.desired,
            "message": scaling.reason,
            "lastScaleTime": scaling.at,
            "trail": [{"step": s, "replicas": r, "note": n} for s, r, n in scaling.trail],
            "variants": [{"name": v, "replicas": n} for v, n in scaling.by_variant.items()],
        }
    return status


def _engine(spec: ServiceSpec) -> Object:
    """The engine settings in effect; None for those that the engine derives from the model."""
    memory = spec.kv_memory_bytes
    return {
        "maxModelLen": spec.max_model_len,
        "maxNumSeqs": spec.max_num_seqs,
        "maxNumBatchedTokens": spec.max_num_batched_tokens,
        "dtype": spec.dtype,
        "memoryUtilizationPercent": spec.memory_utilization_percent,
        "kvCache": {
            "memory": None if memory is None else str(memory),
            "blockSize": spec.block_size,
            "prefixCaching": {"mode": "Enabled" if spec.prefix_caching else "Disabled"},
        },
    }


def _variants(spec: ServiceSpec, pods: Sequence[ObservedPod]) -> list[str]:
    """Names of the spec's variants, and of removed ones that still have pods."""
    names = dict.fromkeys(variant.name for variant in spec.variants)
    return list(names | dict.fromkeys(sorted(pod.variant for pod in pods if pod.variant)))


def as_traffic(shares: Sequence[Share]) -> list[Object]:
    """Traffic shares in the status's format."""
    return [_as_target(share.side) | {"percent": share.weight} for share in shares]


def _as_target(side: Side) -> Object:
    return {"revision": side.revision, "cohort": COHORT_NAMES[side.cohort]}


def side_of(target: Object) -> Side:
    """The revision and the cohort of a target of traffic or of mirroring in a status."""
    return Side(target["revision"], COHORTS[target["cohort"]])


def traffic_of(status: Object) -> tuple[Share, ...]:
    """The traffic shares in a status, without those of 0 % and those that have lost their share."""
    return tuple(
        Share(side_of(target), target["percent"])
        for target in status.get("traffic", [])
        if target.get("percent", 0) > 0
    )


def _as_mirror(mirror: RolloutMirror) -> Object:
    return {"percent": mirror.percent, "targets": [_as_target(side) for side in mirror.targets]}


def mirror_of(status: Object) -> RolloutMirror | None:
    """The mirroring in a status; None if it has none."""
    mirror = status.get("mirror")
    if not mirror or "percent" not in mirror:
        return None
    return RolloutMirror(tuple(map(side_of, mirror["targets"])), mirror["percent"])


def _kept(field: str, state: RolloutState, previous: Object) -> list[Object]:
    """A rollout field of the previous status; empty once another rollout has started."""
    if state.phase in ("Stopping", "Starting", "Replacing"):
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
    tree: tuple[Condition, ...], previous: Object, generation: int, now: str
) -> list[Object]:
    """Conditions in the status's format, followed by those of other writers.

    A transition time changes only with the condition's status.
    """
    known = {c["type"]: c for c in previous.get("conditions", [])}
    own = [
        c.as_object()
        | {
            "lastTransitionTime": (
                known[c.type]["lastTransitionTime"]
                if c.type in known and known[c.type]["status"] == c.status
                else now
            ),
            "observedGeneration": generation,
        }
        for c in tree
    ]
    ours = {*TYPES, *(c.type for c in tree)}
    return own + [condition for name, condition in known.items() if name not in ours]


def new_events(before: Object, after: Object, revision: str | None) -> list[tuple[str, str, str]]:
    """Events for a change of the status, each as (Normal or Warning, reason, message).

    A Warning asks a person to act. revision: the spec's; None if the spec is invalid.
    """
    had = {c["type"]: c for c in before.get("conditions", [])}
    tree = {c["type"]: c for c in after.get("conditions", [])}
    found = [*_of_stalling(had, tree), *_of_readiness(had, tree)]
    found += _of_rollout(before.get("rollout") or {}, after.get("rollout") or {}, revision)
    found += _of_scaling(before.get("scaling") or {}, after.get("scaling") or {})
    return found


def _is_news(kind: str, had: Object, tree: Object) -> bool:
    """Whether the status or the reason of this condition changed."""
    now, was = tree.get(kind, {}), had.get(kind, {})
    return (now.get("status"), now.get("reason")) != (was.get("status"), was.get("reason"))


def _of_stalling(had: Object, tree: Object) -> Iterator[tuple[str, str, str]]:
    stalled = tree.get("Stalled", {})
    # The rollout's own Event tells of a rejection.
    is_told = stalled.get("reason") == "Rejected"
    if stalled.get("status") == "True" and not is_told and _is_news("Stalled", had, tree):
        yield "Warning", stalled["reason"], stalled["message"]


def _of_readiness(had: Object, tree: Object) -> Iterator[tuple[str, str, str]]:
    ready, stalled = tree.get("Ready"), tree.get("Stalled", {})
    if ready is None or not _is_news("Ready", had, tree):
        return
    if stalled.get("status") == "True" and stalled["reason"] == ready["reason"]:
        return
    is_rolling = tree.get("Reconciling", {}).get("status") == "True"
    is_well = ready["status"] == "True" or (is_rolling and ready["reason"] in STARTING_UP)
    yield "Normal" if is_well else "Warning", ready["reason"], ready["message"]


def _of_scaling(before: Object, after: Object) -> Iterator[tuple[str, str, str]]:
    number = after.get("desiredReplicas")
    had = before.get("desiredReplicas", number)
    if number != had and number is not None:
        reason = "ScaledUp" if number > had else "ScaledDown"
        yield "Normal", reason, f"{had} -> {number} replicas: {after['message']}"


def _of_rollout(before: Object, after: Object, revision: str | None) -> list[tuple[str, str, str]]:
    phase = after.get("phase")
    if phase in (None, before.get("phase")) or (not before and phase in ("Stable", "Starting")):
        return []
    rejected = after.get("rejected") or {}
    # Discarding a revision that the spec no longer has is normal.
    is_wrong = phase in ("RollingBack", "Rejected") and rejected.get("revision") == revision
    kind = "Warning" if is_wrong else "Normal"
    text = (
        f"revision {rejected['revision']}: {rejected['message']}" if rejected else after["message"]
    )
    return [(kind, f"Rollout{phase}", text)]
