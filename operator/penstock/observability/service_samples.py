"""Turns a service's spec, status and children into samples of the operator's metrics."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.observed.children import ObservedDeployment, ObservedState
from penstock.core.observed.fetch_totals import FetchTotals
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.rollout.deadlines import phase_deadline_s
from penstock.core.scaling.report import ScalingReport
from penstock.core.spec.service import Object, ServiceSpec
from penstock.observability.metrics import operator as specs
from penstock.observability.metrics.fetches import FetchMetrics
from penstock.observability.metrics.operator_labels import CONDITION
from penstock.observability.metrics.specs import MetricSpec


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric. labels: values of its labels after `service`, in their order."""

    spec: MetricSpec
    value: float
    labels: tuple[str, ...] = ()


def fetch_samples(totals: FetchTotals, metrics: FetchMetrics) -> Iterator[Sample]:
    """Samples of fetches; none before the first one has ended."""
    if not totals.by_reason:
        return
    for reason, count in totals.by_reason.items():
        yield Sample(metrics.fetches, count, (reason,))
    yield Sample(metrics.downloaded_bytes, totals.downloaded_bytes)
    yield Sample(metrics.seconds, totals.seconds)
    yield Sample(metrics.cached_files, totals.num_cache_hits)


def status_samples(status: Object, generation: int) -> Iterator[Sample]:
    """Samples of a status with the current names of its fields. generation: of the spec."""
    yield Sample(specs.SPEC_GENERATION, generation)
    for condition in status.get("conditions", []):
        if condition["type"] in CONDITION.values:  # others belong to other writers
            yield Sample(specs.CONDITION_STATUS, 1, (condition["type"], condition["status"]))
    for target in status.get("traffic", []):
        labels = target["revision"], target["cohort"]
        yield Sample(specs.TRAFFIC_WEIGHT, target["percent"] / 100, labels)
    rollout = status.get("rollout")
    if rollout and "phaseTransitionTime" in rollout:
        yield Sample(specs.ROLLOUT_PHASE, 1, (rollout["phase"],))
        started_s = parse_timestamp(rollout["phaseTransitionTime"])
        yield Sample(specs.ROLLOUT_PHASE_START, started_s)
        yield from _canary_samples(rollout, _judged_revision(status))


def rollout_samples(
    spec: ServiceSpec, status: Object, pods: Iterable[ObservedPod], now_s: float
) -> Iterator[Sample]:
    """The sample of the rollout's deadline. now_s: since the epoch."""
    state = RolloutState.of(status, now_s)
    if state is not None:
        at_s = phase_deadline_s(state, spec, ObservedState(pods=tuple(pods)))
        if at_s is not None:
            yield Sample(specs.ROLLOUT_DEADLINE, at_s)


def _judged_revision(status: Object) -> str:
    """The revision that the evidence is about: a canary, a rejected one, or a promoted one."""
    rollout = status["rollout"]
    rejected = rollout.get("rejected") or {}
    return str(
        rollout.get("revision") or rejected.get("revision") or status.get("stableRevision", "")
    )


def _canary_samples(rollout: Object, revision: str) -> Iterator[Sample]:
    for test in rollout.get("evidence", []):
        labels = revision, test["metric"]
        yield Sample(specs.CANARY_E_VALUE, test["eValue"], labels)
        yield Sample(specs.CANARY_EFFECT, test["effect"], labels)
        for arm in ("canary", "control"):
            yield Sample(specs.CANARY_SAMPLES, test[f"{arm}Samples"], (*labels, arm))
        for bound in ("low", "high"):
            if test.get(bound) is not None:
                yield Sample(specs.CANARY_EFFECT_BOUND, test[bound], (*labels, bound))
    for gate in rollout.get("gates", []):
        yield Sample(specs.CANARY_GATE, 1, (gate["name"], gate["state"]))


def spec_samples(spec: ServiceSpec, status: Object) -> Iterator[Sample]:
    """Samples of the settings, and of the replicas that are decided."""
    scaling = spec.scaling
    strategy = (status.get("rollout") or {}).get("strategy", spec.rollout.strategy)
    yield Sample(specs.SERVICE_INFO, 1, (spec.model_name, scaling.mode, strategy))
    yield Sample(specs.MIN_REPLICAS, scaling.min_replicas)
    yield Sample(specs.MAX_REPLICAS, scaling.max_replicas)
    for variant, replicas in _desired_replicas(spec, status).items():
        yield Sample(specs.DESIRED_REPLICAS, replicas, (variant,))
    objectives = scaling.objectives
    if objectives is None:
        return
    yield Sample(specs.OBJECTIVE_TARGET, objectives.attainment)
    if objectives.has_ttft:
        yield Sample(specs.OBJECTIVE_S, objectives.ttft_s, ("ttft",))
    if objectives.has_tpot:
        yield Sample(specs.OBJECTIVE_S, objectives.tpot_s, ("tpot",))


def _desired_replicas(spec: ServiceSpec, status: Object) -> Mapping[str, int]:
    """Replicas of the last decision by variant; the only variant of a service without variants is ""."""
    if spec.scaling.mode == "External":
        return {"": spec.external_replicas}
    report = ScalingReport.of(status)
    if report is None:
        return {}
    return report.by_variant or {"": report.desired}


def replica_samples(
    spec: ServiceSpec,
    deployments: Iterable[ObservedDeployment],
    pods: Iterable[ObservedPod],
    now_s: float,
) -> Iterator[Sample]:
    """Samples of the numbers of engines and of their cost. now_s: since the epoch."""
    requested: Counter[tuple[str, str]] = Counter()
    for deployment in deployments:
        requested[deployment.revision, deployment.variant] += deployment.replicas
    engines = [pod for pod in pods if pod.is_active_engine]
    running = Counter((pod.revision, pod.variant) for pod in engines)
    ready = Counter((pod.revision, pod.variant) for pod in engines if pod.is_ready)
    for labels in {**requested, **running}:  # `|` would leave out those that are scaled to zero
        yield Sample(specs.PROVISIONED_REPLICAS, requested[labels], labels)
        yield Sample(specs.REPLICAS, running[labels], labels)
        yield Sample(specs.READY_REPLICAS, ready[labels], labels)
    unready = [
        now_s - parse_timestamp(pod.unready_at or pod.created_at)
        for pod in engines
        if not pod.is_ready
    ]
    yield Sample(specs.UNREADY_S, max(unready, default=0.0))
    yield from _cost_samples(spec, Counter(pod.variant for pod in engines))


def _cost_samples(spec: ServiceSpec, pods: Mapping[str, int]) -> Iterator[Sample]:
    """pods: number of engines by variant."""
    for variant, placed in spec.placed.items():
        if placed.resources.accelerator is not None:
            name, count = placed.resources.accelerator
            yield Sample(specs.ACCELERATORS, count * pods[variant], (variant, name))
    for each in spec.variants:
        price = each.price_per_hour * pods[each.name]
        yield Sample(specs.PRICE_PER_HOUR, price, (each.name,))
