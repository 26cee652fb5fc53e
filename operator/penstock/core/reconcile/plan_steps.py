"""Collects the writes of a plan: revisions, preflights, Deployments, replicas and deletions."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from penstock.core.formats.strategic_merge import covers
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.manifests import engine as manifests
from penstock.core.manifests.disruption import engines_budget
from penstock.core.manifests.evaluation import evaluation_job
from penstock.core.manifests.history import controller_revision
from penstock.core.manifests.model_fetch import with_resolved_uris
from penstock.core.observed.accelerator_memory import Source
from penstock.core.observed.children import ObservedDeployment, ObservedState
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.preflight import repetition_cause, resolved_models
from penstock.core.observed.rollout_phases import PHASES
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.reconcile.ended_engines import ended_engines_to_delete
from penstock.core.reconcile.preflights import plan_preflights
from penstock.core.reconcile.variant_split import VariantSplit, split_replicas
from penstock.core.routing.pick import Side
from penstock.core.spec import history
from penstock.core.spec.history import PinnedPods
from penstock.core.spec.service import PREFLIGHT, Object, ServiceSpec

# Least age of a lost pod that runs once before it is replaced, s; equals the first back-off of a Job.
LOST_RETRY_S = 10.0
# The same of a pod whose source did not answer, s. It has retried for about a minute itself.
SOURCE_RETRY_S = 120.0


@dataclass(frozen=True, slots=True)
class Scale:
    """A change of a Deployment's replicas."""

    deployment: str
    replicas: int


@dataclass(frozen=True, slots=True)
class Deletion:
    """An object to delete; its uid distinguishes it from a later object of the same name."""

    kind: str  # ControllerRevision, Deployment, Job, Pod or PodDisruptionBudget
    name: str
    uid: str


class PlanSteps:
    """Collects the writes of one plan."""

    def __init__(
        self,
        spec: ServiceSpec,
        observed: ObservedState,
        image: str,
        wanted: str,
        variant_split: VariantSplit,
        now_s: float,
    ) -> None:
        self._spec, self._observed, self._image, self._wanted = spec, observed, image, wanted
        self._variant_split, self._now_s = variant_split, now_s
        self._is_at_zero = False
        self.create: list[Object] = []
        self.larger: dict[str, Object] = {}
        self.apply: list[Object] = []
        self.scale: list[Scale] = []
        self.delete: list[Deletion] = []
        self.details: list[str] = []
        self.unread: frozenset[Source] = frozenset()

    def collect(self, state: RolloutState, pods: dict[Side, int | None], total: int) -> None:
        """Collect all writes. pods: target replicas by side; total: replicas for all of the traffic."""
        self._is_at_zero = total == 0
        self.bring_up(state, pods)
        self.evaluate(state)
        self.protect(total)
        self.set_replicas(pods)
        self.remove(state, pods)

    def bring_up(self, state: RolloutState, pods: dict[Side, int | None]) -> None:
        """Apply the Deployments of all revisions and cohorts, after recording the revisions."""
        if self._observed.name_taken_by is not None:
            return
        made = self._record_revisions(state, pods)
        for side, replicas in pods.items():
            spec = self._spec_of(side.revision, state)
            if spec is None or not self._is_admitted(spec, side, made[side.revision]):
                continue
            parts = split_replicas(replicas or 0, self._variant_split)
            # Orphaned pods end only if a Deployment takes them over.
            to_end = {p.variant for p in self._observed.serving(*side)} if replicas == 0 else ()
            for variant, placed in spec.placed.items():
                is_wanted = parts[variant] > 0 or self._is_at_zero or variant in to_end
                pinned = made[side.revision]
                self._bring_up(placed, side, variant, pinned, parts[variant], is_wanted=is_wanted)

    def _spec_of(self, revision: str, state: RolloutState) -> ServiceSpec | None:
        """The revision's spec; None if it was refused, or is neither the wanted nor the stable one."""
        if revision in self._observed.refusals:
            return None
        if revision == self._wanted:
            return self._spec
        return self._observed.stable_spec if revision == state.stable else None

    def _pods_of(self, spec: ServiceSpec, revision: str) -> PinnedPods:
        """The revision's pod template: as recorded, else built from the spec.

        A Deployment without a template hash was created by a version of Penstock that recorded no
        templates; then its live template is adopted.
        """
        known = (entry for entry in self._observed.history if entry.revision == revision)
        recorded = next((entry.pods for entry in known), None)
        live = self._observed.deployment(revision)
        if live is not None and (recorded is None or not live.template_hash):
            return manifests.adopted_pods(spec, revision, live)
        pods = recorded or manifests.own_pods(spec, revision, self._image)
        models = resolved_models(self._observed.preflights(revision))
        return replace(pods, serve=with_resolved_uris(pods.serve, models)) if models else pods

    def _record_revisions(
        self, state: RolloutState, sides: Collection[Side]
    ) -> dict[str, PinnedPods]:
        """Record revisions that are missing or outdated in the history. Returns the pods of each."""
        made = {}
        # Includes a stable revision whose pods are removed: a rollback may need it.
        revisions = dict.fromkeys([*(side.revision for side in sides), state.stable or ""])
        for revision in revisions:
            spec = self._spec_of(revision, state)
            if spec is None:
                continue
            made[revision] = self._pods_of(spec, revision)
            entry = history.updated_entry(
                self._observed.history, revision, spec.recorded_fields, made[revision],
                is_latest=revision == self._wanted, is_stable=revision == state.stable,
            )  # fmt: skip
            if entry is not None:
                self.apply.append(controller_revision(self._spec, entry))
                self.details.append(f"record revision {revision} as number {entry.number}")
        self._adopt_revisions(made)
        return made

    def _adopt_revisions(self, recorded: Collection[str]) -> None:
        """Take over the other revisions that a deleted service of the same name left without an owner."""
        for entry in self._observed.history:
            if entry.is_orphan and entry.revision not in recorded:
                self.apply.append(controller_revision(self._spec, entry))
                self.details.append(f"adopt revision {entry.revision}")

    def _is_admitted(self, spec: ServiceSpec, side: Side, pods: PinnedPods) -> bool:
        """Whether the revision's preflights passed; creates missing ones."""
        revision = side.revision
        if side.cohort or self._observed.deployments_of(revision):
            return True
        preflights = plan_preflights(spec, self._observed, revision, pods)
        self.create += preflights.create
        self.larger |= preflights.larger
        self.unread |= preflights.unread
        self.details += [f"check the model for revision {revision}" for _ in preflights.create]
        for pod in preflights.outdated:
            self.delete.append(Deletion("Pod", pod.name, pod.uid))
            self.details.append(f"check the model for revision {revision} again")
        return preflights.is_passed

    def _bring_up(
        self,
        spec: ServiceSpec,
        side: Side,
        variant: str,
        pods: PinnedPods,
        replicas: int,
        *,
        is_wanted: bool,
    ) -> None:
        """Apply the Deployment of one side on one variant.

        spec: as placed on the variant. is_wanted: whether to create one that does not exist.
        """
        deployment = self._observed.deployments_of(*side).get(variant)
        wanted = manifests.deployment(spec, side.revision, pods, side.cohort, variant)
        if deployment is None:
            if is_wanted:
                self.apply.append(manifests.with_replicas(wanted, replicas))
                self.details.append(f"create {wanted['metadata']['name']}")
        elif not deployment.is_ending and not covers(deployment.body, wanted):
            self.apply.append(manifests.repair(wanted, deployment))
            self.details.append(f"repair {deployment.name}")

    def evaluate(self, state: RolloutState) -> None:
        """Create the canary's evaluation Job, once, as soon as the canary is judged."""
        revision, wanted = state.revision, self._spec.rollout.evaluation
        is_due = PHASES[state.phase].collects_evidence
        if revision is None or wanted is None or not is_due:
            return
        ready = sorted(
            pod.address for pod in self._observed.serving(revision) if pod.is_ready and pod.address
        )
        # A terminating Job of an earlier attempt still occupies the name.
        if ready and all(job.revision != revision for job in self._observed.jobs):
            stable = state.stable or ""
            self.apply.append(evaluation_job(self._spec, wanted, revision, stable, ready[0]))
            self.details.append(f"evaluate revision {revision}")

    def protect(self, total: int) -> None:
        """Apply or delete the PodDisruptionBudget, which keeps node drains from evicting all engines.

        A single replica needs none, nor does a service that has a budget of the user's.
        """
        known, wanted = self._observed.budget, engines_budget(self._spec)
        name = wanted["metadata"]["name"]
        if total > 1 and self._observed.deployments and not known.foreign:
            if known.ours is None or not covers(known.ours["spec"], wanted["spec"]):
                self.apply.append(wanted)
                self.details.append(f"allow one disruption at a time: {name}")
        elif known.ours is not None and "deletionTimestamp" not in known.ours["metadata"]:
            self.delete.append(Deletion("PodDisruptionBudget", name, known.ours["metadata"]["uid"]))
            self.details.append(f"remove {name}")

    def set_replicas(self, pods: dict[Side, int | None]) -> None:
        """Set the replicas of each side by variant.

        A variant that was removed from the spec keeps its replicas until it is replaced.
        """
        for side, replicas in pods.items():
            deployments = self._observed.deployments_of(*side)
            for variant, part in split_replicas(replicas or 0, self._variant_split).items():
                if replicas is not None and variant in deployments:
                    self._scale(deployments[variant], part)

    def _scale(self, deployment: ObservedDeployment, replicas: int) -> None:
        if deployment.replicas != replicas and not deployment.is_ending:
            self.scale.append(Scale(deployment.name, replicas))
            self.details.append(f"set {deployment.name} to {replicas} replicas")

    def remove(self, state: RolloutState, pods: dict[Side, int | None]) -> None:
        """Delete what is no longer needed.

        Deployments go after the gateways' traffic has left them, and those of a variant that was removed
        from the spec once the other variants serve.
        """
        kept = set(pods)
        routed = {share.side for share in self._observed.traffic}
        for deployment in self._observed.deployments:
            is_over = deployment.side not in kept | routed or self._is_replaced(deployment, pods)
            if is_over and not deployment.is_ending:
                self.delete.append(Deletion("Deployment", deployment.name, deployment.uid))
                self.details.append(f"remove {deployment.name}")
        for job in self._observed.jobs:
            is_needed = job.revision == state.revision and PHASES[state.phase].is_judged
            if not is_needed and not job.is_ending:
                self.delete.append(Deletion("Job", job.name, job.uid))
        revisions = {side.revision for side in kept} | {state.revision, state.stable}
        for pod in self._observed.pods:
            if _is_stale_preflight(pod, revisions) or self._is_to_repeat(pod):
                self.delete.append(Deletion("Pod", pod.name, pod.uid))
        for pod in ended_engines_to_delete(self._observed, self._now_s):
            self.delete.append(Deletion("Pod", pod.name, pod.uid))
        rejected = state.rejected.revision if state.rejected else ""
        holder = self._observed.state_holder
        in_use = {name for name in (*revisions, self._wanted, rejected, holder) if name}
        limit = self._spec.rollout.history
        for entry in history.excess_revisions(self._observed.history, in_use, limit):
            self.delete.append(Deletion("ControllerRevision", entry.name, entry.uid))

    def _is_to_repeat(self, pod: ObservedPod) -> bool:
        """Whether the pod is a preflight that has to be repeated, and whose back-off is over."""
        return (
            pod.role == PREFLIGHT
            and not pod.is_ending
            and repetition_cause(pod) is not None
            and self._now_s >= repetition_time_s(pod)
        )

    def _is_replaced(self, deployment: ObservedDeployment, pods: dict[Side, int | None]) -> bool:
        """Whether the variant was removed from the spec and enough pods of the others are ready."""
        wanted = pods.get(deployment.side)
        if deployment.variant in self._variant_split or wanted is None:
            return False
        serving = self._observed.serving(*deployment.side)
        return sum(pod.is_ready for pod in serving if pod.variant in self._variant_split) >= wanted


def repetition_time_s(pod: ObservedPod) -> float:
    """The time at which a preflight, or a fetch of an adapter, is repeated, in Unix seconds.

    The back-off limits retries on a node that admits no pod, and of sources that do not answer.
    """
    pause_s = LOST_RETRY_S if pod.lost else SOURCE_RETRY_S
    return parse_timestamp(pod.created_at) + pause_s


def _is_stale_preflight(pod: ObservedPod, kept: set[str | None]) -> bool:
    return pod.role == PREFLIGHT and pod.revision not in kept and not pod.is_ending
