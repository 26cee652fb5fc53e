"""What to do next for one service. Level-triggered: from what is wanted and what is there.

    where the rollout stands now -> what its phase wants to be there
      -> the revision's history -> its preflight -> its Deployment -> numbers -> the rest goes

A new phase is written down before anything is done about it, and shares of traffic before pods go.
Applied again to its own result, a plan is empty.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from penstock.core.canary.verdict import Verdict
from penstock.core.formats.strategic_merge import covers
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.manifests import engine as manifests
from penstock.core.manifests.disruption import engines_budget
from penstock.core.manifests.evaluation import evaluation_job
from penstock.core.manifests.history import controller_revision
from penstock.core.observed.children import Observed, ObservedDeployment, ObservedPod, verdict_of
from penstock.core.observed.rollout_state import Phase, RolloutState
from penstock.core.reconcile.variant_split import Mix, divided, mix_of
from penstock.core.rollout.commands import Command
from penstock.core.rollout.events import Seen, awaited
from penstock.core.rollout.routes import Obeyed
from penstock.core.rollout.step import begin, step
from penstock.core.rollout.targets import targets
from penstock.core.rollout.wake import earlier_s, wake_s
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import Copies, Share
from penstock.core.spec import history
from penstock.core.spec.history import PinnedPods
from penstock.core.spec.revision import revision_of
from penstock.core.spec.service import PREFLIGHT, Object, ServiceSpec

# Phases in which an evaluation's result may still matter.
EVALUATED: tuple[Phase, ...] = ("Judging", "Paused", "Growing")
# A lost preflight is not replaced sooner than this after its creation; the same back-off as a Job's.
PREFLIGHT_RETRY_S = 10.0


@dataclass(frozen=True, slots=True)
class Scale:
    deployment: str
    replicas: int


@dataclass(frozen=True, slots=True)
class Doomed:
    """An object to delete, told apart from a later one of the same name."""

    kind: str  # ControllerRevision, Deployment, Job, Pod or PodDisruptionBudget
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """Inputs of a plan that are not read from the cluster. None: there is none.

    desired, by_variant: the scaler's replicas, in total and by variant. verdict: the judge's, on the
    revision that is rolled out. command: the user's last. obeyed: the traffic split that each gateway
    applies.
    """

    desired: int | None = None
    verdict: Verdict | None = None
    command: Command | None = None
    obeyed: Obeyed | None = None
    by_variant: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """The next rollout state and the writes to make, in this order.

    revision: the spec's. generation: of shares and copies, incremented with each change of them.
    wake_s: seconds until the next plan if nothing changes. awaited: the gateway that is waited for.
    details: the writes in words, for the log.
    """

    revision: str
    rollout: RolloutState
    shares: tuple[Share, ...]
    copies: Copies | None = None
    generation: int = 0
    wake_s: float | None = None
    awaited: str = ""
    apply: tuple[Object, ...] = ()
    create: tuple[Object, ...] = ()
    scale: tuple[Scale, ...] = ()
    delete: tuple[Doomed, ...] = ()
    details: tuple[str, ...] = field(default=())

    @property
    def is_empty(self) -> bool:
        return not (self.create or self.apply or self.scale or self.delete)


def plan(
    spec: ServiceSpec,
    observed: Observed,
    image: str,
    now_s: float,
    inputs: PlanInputs = PlanInputs(),
) -> Plan:
    """Plan the next writes for `spec`. A refused revision does not affect the one that serves."""
    wanted = revision_of(spec)
    total = replicas_for_all(spec, observed, inputs.desired)
    seen = Seen(
        spec.rollout, observed, wanted, total, now_s, inputs.verdict, inputs.command, inputs.obeyed
    )
    before = observed.rollout
    state = begin(seen) if before is None else step(before, seen)
    aims = targets(spec.rollout, state, observed, total)
    is_new = before is None or (state.phase, state.revision) != (before.phase, before.revision)
    mix = mix_of(spec, observed, inputs.by_variant, total)
    steps = _Steps(spec, observed, image, wanted, mix, now_s)
    if not is_new:
        steps.bring_up(state, aims.pods)
        steps.evaluate(state)
        steps.protect(total)
        steps.set_replicas(aims.pods)
        steps.remove(state, aims.pods)
    retry_s = _until_preflight_retry_s(observed, now_s)
    return Plan(
        revision=wanted,
        rollout=state,
        shares=aims.shares,
        copies=aims.copies,
        generation=observed.traffic_generation
        + ((aims.shares, aims.copies) != (observed.traffic, observed.copies)),
        wake_s=0.0 if is_new else earlier_s(wake_s(state, seen), retry_s),
        awaited="" if is_new else awaited(state, seen),
        apply=tuple(steps.apply),
        create=tuple(steps.create),
        scale=tuple(steps.scale),
        delete=tuple(steps.delete),
        details=tuple(steps.details),
    )


def replicas_for_all(spec: ServiceSpec, observed: Observed, desired: int | None) -> int:
    """How many pods all of the traffic needs; a rollout's own come on top.

    desired: the scaler's last word. Without one it stays as it was when the rollout began.
    """
    state = observed.rollout
    serving = observed.deployment(observed.stable)
    current = observed.replicas(observed.stable) if serving else 1
    if state is not None and not state.is_calm:
        current = state.replicas
    match spec.scaling.mode:
        case "External":
            return spec.external_replicas
        case "Active":
            number = current if desired is None else desired
            return min(max(number, spec.scaling.min_replicas), spec.scaling.max_replicas)
        case "Shadow":
            return current


class _Steps:
    """Gathers the writes of one plan."""

    def __init__(
        self,
        spec: ServiceSpec,
        observed: Observed,
        image: str,
        wanted: str,
        mix: Mix,
        now_s: float,
    ) -> None:
        self._spec, self._observed, self._image, self._wanted = spec, observed, image, wanted
        self._mix, self._now_s = mix, now_s
        self.create: list[Object] = []
        self.apply: list[Object] = []
        self.scale: list[Scale] = []
        self.delete: list[Doomed] = []
        self.details: list[str] = []

    def bring_up(self, state: RolloutState, pods: dict[Side, int | None]) -> None:
        """Apply the Deployments of all revisions and cohorts, after recording the revisions."""
        if self._observed.name_taken_by is not None:
            return
        made = self._remember(state, pods)
        for side, replicas in pods.items():
            spec = self._spec_of(side.revision, state)
            if spec is None or not self._is_admitted(spec, side, made[side.revision]):
                continue
            parts = divided(replicas or 0, self._mix)
            for variant, placed in spec.placed.items():
                self._bring_up(placed, side, variant, made[side.revision], parts[variant])

    def _spec_of(self, revision: str, state: RolloutState) -> ServiceSpec | None:
        """The revision's spec; None if it was refused, or is neither the wanted nor the stable one."""
        if revision in self._observed.refusals:
            return None
        if revision == self._wanted:
            return self._spec
        return self._observed.stable_spec if revision == state.stable else None

    def _pods_of(self, spec: ServiceSpec, revision: str) -> PinnedPods:
        """The revision's pods: as recorded, else new ones from the spec.

        A Deployment without a template hash was made by a version of Penstock that recorded no pods:
        then its template is adopted.
        """
        known = (entry for entry in self._observed.history if entry.revision == revision)
        recorded = next((entry.pods for entry in known), None)
        live = self._observed.deployment(revision)
        if live is not None and (recorded is None or not live.template_hash):
            return manifests.adopted_pods(spec, revision, live)
        return recorded or manifests.pods_of(spec, revision, self._image)

    def _remember(self, state: RolloutState, sides: Collection[Side]) -> dict[str, PinnedPods]:
        """Record the revisions in the history where necessary. Returns the pods of each."""
        made = {}
        # Includes a stable revision whose pods are removed: a rollback may need it.
        revisions = dict.fromkeys([*(side.revision for side in sides), state.stable or ""])
        for revision in revisions:
            spec = self._spec_of(revision, state)
            if spec is None:
                continue
            made[revision] = self._pods_of(spec, revision)
            entry = history.updated_entry(
                self._observed.history, revision, spec.shape, made[revision],
                is_latest=revision == self._wanted, is_stable=revision == state.stable,
            )  # fmt: skip
            if entry is not None:
                self.apply.append(controller_revision(self._spec, entry))
                self.details.append(f"remember revision {revision} as number {entry.number}")
        return made

    def _is_admitted(self, spec: ServiceSpec, side: Side, pods: PinnedPods) -> bool:
        """Whether the revision's preflight passed; creates one, on the first variant, if necessary."""
        if side.cohort or self._observed.of_side(side.revision):
            return True
        preflight = self._observed.preflight(side.revision)
        if preflight is None:
            variant, first = next(iter(spec.placed.items()))
            self.create.append(manifests.preflight(first, side.revision, pods, variant))
            self.details.append(f"check the model for revision {side.revision}")
            return False
        verdict = verdict_of(preflight)
        return verdict is not None and verdict.ok

    def _bring_up(
        self, spec: ServiceSpec, side: Side, variant: str, pods: PinnedPods, replicas: int
    ) -> None:
        """spec: as placed on the variant."""
        deployment = self._observed.of_side(*side).get(variant)
        wanted = manifests.deployment(spec, side.revision, pods, side.cohort, variant)
        if deployment is None:
            # A new Deployment starts with one pod, so it is created only if one is to run.
            if replicas or self._is_empty:
                self.apply.append(wanted)
                self.details.append(f"create {wanted['metadata']['name']}")
        elif not deployment.is_ending and not covers(deployment.body, wanted):
            self.apply.append(wanted)
            self.details.append(f"repair {deployment.name}")

    def evaluate(self, state: RolloutState) -> None:
        """Once for a canary, as soon as it is judged."""
        revision, wanted = state.revision, self._spec.rollout.evaluation
        if revision is None or wanted is None or state.phase != "Judging":
            return
        ready = sorted(
            pod.address for pod in self._observed.serving(revision) if pod.is_ready and pod.address
        )
        # One of an earlier try has the name for as long as it goes.
        if ready and all(job.revision != revision for job in self._observed.jobs):
            stable = state.stable or ""
            self.apply.append(evaluation_job(self._spec, wanted, revision, stable, ready[0]))
            self.details.append(f"evaluate revision {revision}")

    def protect(self, total: int) -> None:
        """Apply or delete the PodDisruptionBudget, which keeps node drains from evicting all engines.

        None is needed for one replica, or where the user has one.
        """
        known, wanted = self._observed.budget, engines_budget(self._spec)
        name = wanted["metadata"]["name"]
        if total > 1 and self._observed.deployments and not known.foreign:
            if known.ours is None or not covers(known.ours["spec"], wanted["spec"]):
                self.apply.append(wanted)
                self.details.append(f"allow one disruption at a time: {name}")
        elif known.ours is not None and "deletionTimestamp" not in known.ours["metadata"]:
            self.delete.append(Doomed("PodDisruptionBudget", name, known.ours["metadata"]["uid"]))
            self.details.append(f"remove {name}")

    @property
    def _is_empty(self) -> bool:
        """Whether the service is to have no pods at all."""
        return self._spec.scaling.mode == "External" and self._spec.external_replicas == 0

    def set_replicas(self, pods: dict[Side, int | None]) -> None:
        """Of each variant its part; one that the spec has no more is left until it is replaced."""
        for side, replicas in pods.items():
            deployments = self._observed.of_side(*side)
            for variant, part in divided(replicas or 0, self._mix).items():
                if replicas is not None and variant in deployments:
                    self._scale(deployments[variant], part)

    def _scale(self, deployment: ObservedDeployment, replicas: int) -> None:
        if deployment.replicas != replicas and not deployment.is_ending:
            self.scale.append(Scale(deployment.name, replicas))
            self.details.append(f"set {deployment.name} to {replicas} replicas")

    def remove(self, state: RolloutState, pods: dict[Side, int | None]) -> None:
        """Whatever is not to be there, once gateways were told; what the spec has no variant for any
        more, once the others serve."""
        kept = set(pods)
        told = {share.side for share in self._observed.traffic}
        for deployment in self._observed.deployments:
            is_over = deployment.side not in kept | told or self._is_replaced(deployment, pods)
            if is_over and not deployment.is_ending:
                self.delete.append(Doomed("Deployment", deployment.name, deployment.uid))
                self.details.append(f"remove {deployment.name}")
        for job in self._observed.jobs:
            is_needed = job.revision == state.revision and state.phase in EVALUATED
            if not is_needed and not job.is_ending:
                self.delete.append(Doomed("Job", job.name, job.uid))
        revisions = {side.revision for side in kept} | {state.revision, state.stable}
        for pod in self._observed.pods:
            if _is_stale_preflight(pod, revisions) or self._is_lost_preflight(pod):
                self.delete.append(Doomed("Pod", pod.name, pod.uid))
        rejected = state.rejected.revision if state.rejected else ""
        in_use = {name for name in (*revisions, self._wanted, rejected) if name}
        limit = self._spec.rollout.history
        for entry in history.beyond_limit(self._observed.history, in_use, limit):
            self.delete.append(Doomed("ControllerRevision", entry.name, entry.uid))

    def _is_lost_preflight(self, pod: ObservedPod) -> bool:
        """Whether the pod is a lost preflight whose back-off is over, so that it is replaced."""
        return (
            pod.role == PREFLIGHT
            and bool(pod.lost)
            and not pod.is_ending
            and verdict_of(pod) is None
            and self._now_s >= preflight_retry_s(pod)
        )

    def _is_replaced(self, deployment: ObservedDeployment, pods: dict[Side, int | None]) -> bool:
        """Whether its variant is no longer in the spec and enough pods of the others are ready."""
        wanted = pods.get(deployment.side)
        if deployment.variant in self._mix or wanted is None:
            return False
        serving = self._observed.serving(*deployment.side)
        return sum(pod.is_ready for pod in serving if pod.variant in self._mix) >= wanted


def preflight_retry_s(preflight: ObservedPod) -> float:
    """When a lost preflight is replaced. The back-off is for a node that admits none of them."""
    return parse_timestamp(preflight.created_at) + PREFLIGHT_RETRY_S


def _until_preflight_retry_s(observed: Observed, now_s: float) -> float | None:
    """Seconds until the first lost preflight is replaced; None without one."""
    lost = (pod for pod in observed.pods if pod.role == PREFLIGHT and pod.lost)
    return min((s for pod in lost if (s := preflight_retry_s(pod) - now_s) > 0), default=None)


def _is_stale_preflight(pod: ObservedPod, kept: set[str | None]) -> bool:
    return pod.role == "preflight" and pod.revision not in kept and not pod.is_ending
