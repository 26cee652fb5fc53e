"""What to do next for one service. Level-triggered: from what is wanted and what is there.

    preflight of the revision -> its Deployment -> traffic -> the rest goes

Applied again to its own result, a plan is empty.
"""

from dataclasses import dataclass, field

from penstock.core.manifests import engine as manifests
from penstock.core.observed import Observed, ObservedDeployment, ObservedPod, verdict_of
from penstock.core.revision import revision_of
from penstock.core.service import Object, ServiceSpec
from penstock.core.strategic_merge import covers


@dataclass(frozen=True, slots=True)
class Scale:
    deployment: str
    replicas: int


@dataclass(frozen=True, slots=True)
class Doomed:
    """An object to delete, told apart from a later one of the same name."""

    kind: str  # Deployment or Pod
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Writes to make, in this order; details are the same actions in words.

    stable: the revision that takes traffic from now on. candidate: the one that is coming up.
    """

    revision: str
    stable: str | None
    candidate: str | None
    create: tuple[Object, ...] = ()
    apply: tuple[Object, ...] = ()
    scale: tuple[Scale, ...] = ()
    delete: tuple[Doomed, ...] = ()
    details: tuple[str, ...] = field(default=())

    @property
    def is_empty(self) -> bool:
        return not (self.create or self.apply or self.scale or self.delete)


def plan(spec: ServiceSpec, observed: Observed, image: str) -> Plan:
    """The next writes for `spec`. A revision that is refused leaves what serves alone."""
    revision = revision_of(spec)
    stable = _stable(spec, observed, revision)
    candidate = None if stable == revision else revision
    steps = _Steps()
    if observed.name_taken_by is None:
        _bring_up(spec, observed, image, revision, steps)
    _set_replicas(spec, observed, stable, candidate, steps)
    if stable == observed.stable_revision:  # gateways must have been told before pods go
        _remove(observed, {stable, revision}, steps)
    return Plan(
        revision=revision,
        stable=stable,
        candidate=candidate,
        create=tuple(steps.create),
        apply=tuple(steps.apply),
        scale=tuple(steps.scale),
        delete=tuple(steps.delete),
        details=tuple(steps.details),
    )


@dataclass(slots=True)
class _Steps:
    create: list[Object] = field(default_factory=list)
    apply: list[Object] = field(default_factory=list)
    scale: list[Scale] = field(default_factory=list)
    delete: list[Doomed] = field(default_factory=list)
    details: list[str] = field(default_factory=list)


def _stable(spec: ServiceSpec, observed: Observed, revision: str) -> str | None:
    """The revision that should take traffic: the wanted one as soon as it can carry it."""
    serving = observed.deployment(observed.stable_revision)
    wanted = observed.deployment(revision)
    if wanted is None:
        return observed.stable_revision if serving else None
    needed = max(1, serving.replicas) if serving else 1
    ready = sum(pod.is_ready for pod in observed.serving(revision))
    if observed.stable_revision == revision or ready >= needed:
        return revision
    return observed.stable_revision if serving else None


def _bring_up(
    spec: ServiceSpec, observed: Observed, image: str, revision: str, steps: _Steps
) -> None:
    if observed.refusal is not None:
        return
    deployment = observed.deployment(revision)
    if deployment is None:
        preflight = observed.preflight(revision)
        if preflight is None:
            steps.create.append(manifests.preflight(spec, revision, image))
            steps.details.append(f"check the model for revision {revision}")
            return
        verdict = verdict_of(preflight)
        if verdict is None or not verdict.ok:
            return
    wanted = manifests.deployment(spec, revision, image)
    if deployment is None or (not deployment.is_ending and not covers(deployment.body, wanted)):
        steps.apply.append(wanted)
        steps.details.append(f"{'create' if deployment is None else 'repair'} revision {revision}")


def _set_replicas(
    spec: ServiceSpec,
    observed: Observed,
    stable: str | None,
    candidate: str | None,
    steps: _Steps,
) -> None:
    """Bounds for what serves (the scaler moves within them), and as many for what comes up."""
    serving = observed.deployment(stable)
    if serving is not None:
        _scale(serving, _within(spec, serving.replicas), steps)
    coming = observed.deployment(candidate)
    if coming is not None:
        reference = serving.replicas if serving is not None else coming.replicas
        _scale(coming, _within(spec, reference), steps)


def _within(spec: ServiceSpec, replicas: int) -> int:
    match spec.scaling.mode:
        case "External":
            return spec.external_replicas
        case "Active":
            return min(max(replicas, spec.scaling.min_replicas), spec.scaling.max_replicas)
        case "Shadow":
            return replicas


def _scale(deployment: ObservedDeployment, replicas: int, steps: _Steps) -> None:
    if deployment.replicas != replicas and not deployment.is_ending:
        steps.scale.append(Scale(deployment.name, replicas))
        steps.details.append(f"set {deployment.name} to {replicas} replicas")


def _remove(observed: Observed, kept: set[str | None], steps: _Steps) -> None:
    for deployment in observed.deployments:
        if deployment.revision not in kept and not deployment.is_ending:
            steps.delete.append(Doomed("Deployment", deployment.name, deployment.uid))
            steps.details.append(f"remove revision {deployment.revision}")
    for pod in observed.pods:
        if _is_stale_preflight(pod, kept):
            steps.delete.append(Doomed("Pod", pod.name, pod.uid))


def _is_stale_preflight(pod: ObservedPod, kept: set[str | None]) -> bool:
    return pod.role == "preflight" and pod.revision not in kept and not pod.is_ending
