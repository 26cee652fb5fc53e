"""Builds scale targets from cached Kubernetes objects."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.api.conversion.past_specs import accepted_spec
from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.informer import Key
from penstock.controller.process.failures import Failures
from penstock.controller.watching.children import by_service, children_of
from penstock.core.formats.addresses import host_port
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.stored_status import stored_status, traffic_of
from penstock.core.scaling.quotas import Pool, pools_of
from penstock.core.scaling.report import ScalingReport
from penstock.core.scaling.shortage import UnscheduledPods
from penstock.core.scaling.signals import PodPhase, PodView
from penstock.core.spec.service import ENGINE_PORT, SERVE, ServiceSpec


@dataclass(frozen=True, slots=True)
class ScaleTarget:
    """A service with the engines to scrape."""

    service: ServiceSpec
    provisioned: int  # replicas that its Deployments request
    # Engines that serve traffic, each with its host:port; they count for scaling
    pods: tuple[tuple[PodView, str], ...]
    reported: ScalingReport | None  # the scaling report in the status
    # Engines of a rollout that are scraped for faults only
    fault_pods: tuple[tuple[PodView, str], ...] = ()
    # `provisioned` by variant; empty without variants
    by_variant: Mapping[str, int] = field(default_factory=dict)
    # Variants with pods that no node has room for
    unschedulable: Mapping[str, UnscheduledPods] = field(default_factory=dict)
    is_rolling_out: bool = False  # whether a revision is rolled out

    @property
    def is_scaled(self) -> bool:
        """Whether Penstock decides the replicas, and there are any, or may be."""
        scaling = self.service.scaling
        return scaling.mode != "External" and (self.provisioned > 0 or not scaling.min_replicas)


def scale_targets(
    services: Mapping[Key, Object],
    deployments: Iterable[Object],
    pods: Iterable[Object],
    failures: Failures,
) -> list[ScaleTarget]:
    """Build a target for each service that Penstock scales or that has a rollout."""
    by_key, deployments_by_key = by_service(pods), by_service(deployments)
    targets = []
    for key, body in services.items():
        with failures.isolate_errors("scaler", *key):
            target = _target(body, deployments_by_key.get(key, ()), by_key.get(key, ()))
            if target is not None:
                targets.append(target)
    return targets


def _target(
    body: Object, deployments: Iterable[Object], pods: Iterable[Object]
) -> ScaleTarget | None:
    spec = accepted_spec(body)
    if spec is None:
        return None
    status = stored_status(body)
    sides = {share.side for share in traffic_of(status)}
    requested: Counter[str] = Counter()
    own, engines = children_of(body, deployments, pods)
    for deployment in own:
        if deployment.side in sides and deployment.variant in spec.placed:
            requested[deployment.variant] += deployment.replicas
    serving = [pod for pod in engines if pod.role == SERVE and not pod.is_over]
    # A service at zero has traffic shares; one that has never served has none.
    may_wake = bool(sides) and not spec.scaling.min_replicas
    is_scaled = (requested.total() > 0 or may_wake) and spec.scaling.mode != "External"
    scaled = [pod for pod in serving if is_scaled and pod.side in sides]
    is_rolling = bool(status.get("candidateRevision"))
    fault_pods = [pod for pod in serving if is_rolling and pod not in scaled]
    if not is_scaled and not fault_pods:
        return None
    return ScaleTarget(
        service=spec,
        provisioned=requested.total(),
        pods=tuple(map(_view_and_address, scaled)),
        reported=ScalingReport.of(status),
        fault_pods=tuple(map(_view_and_address, fault_pods)),
        by_variant=requested if spec.variants else {},
        unschedulable=_unschedulable(scaled) if spec.variants else {},
        is_rolling_out=is_rolling,
    )


def _unschedulable(pods: Iterable[ObservedPod]) -> dict[str, UnscheduledPods]:
    """Variants with unschedulable pods: age of the oldest one, and the number of placed pods."""
    created: dict[str, list[float]] = {}
    placed: Counter[str] = Counter()
    for pod in pods:
        if pod.is_unschedulable:
            created.setdefault(pod.variant, []).append(parse_timestamp(pod.created_at))
        else:
            placed[pod.variant] += 1
    return {name: UnscheduledPods(min(times), placed[name]) for name, times in created.items()}


def accelerators_held(targets: Iterable[ScaleTarget]) -> Counter[Pool]:
    """Count the accelerators that the pods of all services hold, by quota pool."""
    held: Counter[Pool] = Counter()
    for target in targets:
        placed = target.service.placed
        for variant, pool in pools_of(target.service).items():
            pods = sum(view.variant == variant for view, _ in target.pods)
            held[pool] += pods * placed[variant].resources.num_accelerators
    return held


def _view_and_address(pod: ObservedPod) -> tuple[PodView, str]:
    return _view(pod), host_port(pod.address, ENGINE_PORT)


def _view(pod: ObservedPod) -> PodView:
    phase: PodPhase = "Ready" if pod.is_ready else "Starting"
    return PodView(
        name=pod.name,
        phase="Draining" if pod.is_ending else phase,
        created_s=parse_timestamp(pod.created_at),
        ready_s=parse_timestamp(pod.ready_at) if pod.ready_at else None,
        reading=None,
        variant=pod.variant,
        fetch_s=pod.fetches.total_s if pod.fetches else 0.0,
    )
