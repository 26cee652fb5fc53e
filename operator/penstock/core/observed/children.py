"""The observed state of a service: its child objects, reduced to the fields that the plan needs."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from penstock.core.formats.conditions import find_condition
from penstock.core.observed.accelerator_memory import Source
from penstock.core.observed.label_selector import selects
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.preflight import preflight_result
from penstock.core.observed.quota import exceeds_quota
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import RolloutMirror, Share
from penstock.core.spec.history import Revision
from penstock.core.spec.refusal import Refusal
from penstock.core.spec.service import (
    COHORT_LABEL,
    PREFLIGHT,
    REVISION_LABEL,
    SERVE,
    TEMPLATE_HASH,
    VARIANT_LABEL,
    Object,
    ServiceSpec,
)
from penstock.core.tenants.access_counts import AccessCounts


@dataclass(frozen=True, slots=True)
class ObservedDeployment:
    """The Deployment of one revision, cohort and variant."""

    name: str
    uid: str
    revision: str
    replicas: int  # requested in spec.replicas
    ready: int
    is_ending: bool
    body: Object
    trouble: tuple[str, str] | None = None  # why its pods cannot be created: reason, message
    cohort: str = ""
    variant: str = ""
    created_at: str = ""  # as the API server writes times

    @property
    def side(self) -> Side:
        return Side(self.revision, self.cohort)

    @property
    def exceeds_quota(self) -> bool:
        """Whether pods are missing that find no room in a ResourceQuota."""
        return self.trouble is not None and exceeds_quota(self.trouble[1])

    @property
    def template_hash(self) -> str:
        """Hash of the pod template applied last; empty if a version before the annotation applied it."""
        return str(self.body["metadata"].get("annotations", {}).get(TEMPLATE_HASH, ""))

    @property
    def resource_version(self) -> str:
        """Version of the object that was read."""
        return str(self.body["metadata"].get("resourceVersion", ""))

    @classmethod
    def of(cls, deployment: Object) -> "ObservedDeployment":
        metadata, status = deployment["metadata"], deployment.get("status", {})
        failure = find_condition(status, "ReplicaFailure", "True")
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            revision=metadata.get("labels", {}).get(REVISION_LABEL, ""),
            replicas=deployment["spec"].get("replicas", 1),
            ready=status.get("readyReplicas", 0),
            is_ending="deletionTimestamp" in metadata,
            body=deployment,
            trouble=(failure["reason"], failure["message"]) if failure else None,
            cohort=metadata.get("labels", {}).get(COHORT_LABEL, ""),
            variant=metadata.get("labels", {}).get(VARIANT_LABEL, ""),
            created_at=metadata["creationTimestamp"],
        )


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """The evaluation Job of a canary. reason: of its failure, from the Job's conditions."""

    name: str
    uid: str
    revision: str
    state: Literal["Running", "Passed", "Failed"]
    reason: str = ""
    is_ending: bool = False

    @classmethod
    def of(cls, job: Object) -> "ObservedJob":
        metadata, status = job["metadata"], job.get("status")
        failed, complete = (find_condition(status, kind, "True") for kind in ("Failed", "Complete"))
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            revision=metadata.get("labels", {}).get(REVISION_LABEL, ""),
            state="Failed" if failed else "Passed" if complete else "Running",
            reason=failed.get("message", ""),
            is_ending="deletionTimestamp" in metadata,
        )


@dataclass(frozen=True, slots=True)
class ObservedBudget:
    """PodDisruptionBudgets of a service's engines.

    ours: Penstock's. foreign: name of another one that selects the engines or occupies our name; else
    empty. A pod that two budgets select cannot be evicted, so Penstock's must not exist beside another.
    """

    ours: Object | None = None
    foreign: str = ""

    @classmethod
    def of(
        cls, budgets: Iterable[Object], name: str, uid: str, pods: Collection[Object]
    ) -> "ObservedBudget":
        """Find both among the budgets of a namespace.

        name: of Penstock's budget. uid: of the service. pods: of its engines.
        """
        ours, foreign = None, ""
        for body in budgets:
            metadata, selector = body["metadata"], body.get("spec", {}).get("selector")
            if any(owner["uid"] == uid for owner in metadata.get("ownerReferences", [])):
                ours = body
            elif metadata["name"] == name or any(
                selects(selector, pod["metadata"].get("labels", {})) for pod in pods
            ):
                foreign = metadata["name"]
        return cls(ours, foreign)


def owner_uid(child: Object) -> str | None:
    """Uid of the controlling owner; None for an orphan."""
    owners = child["metadata"].get("ownerReferences", [])
    return next((owner["uid"] for owner in owners if owner.get("controller")), None)


def own_pods(
    pods: Iterable[ObservedPod], deployments: Iterable[ObservedDeployment], uid: str, since: str
) -> tuple[ObservedPod, ...]:
    """The pods of a service, without those of a deleted service of the same name.

    deployments: of the service. uid: of the service. since: its creation time. Pods are owned by
    ReplicaSets, which the operator does not read, so creation times decide. A pod is the service's if it was
    created no earlier than its Deployment, or younger than the service by a full second, as timestamps have
    no fractions. The second rule is for a Deployment that was created again: it takes over older pods.
    """
    made = {(each.side, each.variant): each.created_at for each in deployments}

    def is_own(pod: ObservedPod) -> bool:
        if pod.role == PREFLIGHT:
            return pod.owner in (uid, "")  # an orphan has no owner
        created_at = made.get((pod.side, pod.variant))
        return pod.created_at > since or (created_at is not None and pod.created_at >= created_at)

    return tuple(filter(is_own, pods))


@dataclass(frozen=True, slots=True)
class ObservedState:
    """The children of a service and its stored status."""

    deployments: tuple[ObservedDeployment, ...] = ()
    pods: tuple[ObservedPod, ...] = ()
    history: tuple[Revision, ...] = ()
    rollout: RolloutState | None = None
    # traffic, mirror: traffic shares and mirroring that were last published to gateways
    traffic: tuple[Share, ...] = ()
    mirror: RolloutMirror | None = None
    traffic_generation: int = 0  # number of their changes
    stable_spec: ServiceSpec | None = None  # spec of the stable revision; None if unknown
    # Replicas for all of the traffic, as the status tells; None before the first
    stored_total: int | None = None
    # The revision whose ControllerRevision has the record of the rollout state
    state_holder: str = ""
    # (reason, message) of the refusal that the status tells of the revision that is rolled out
    stored_refusal: tuple[str, str] | None = None
    # Name of the service of the namespace that has the model name, if it is another one.
    name_taken_by: str | None = None
    # Why the model name alone leads to another namespace, or may do so; empty if it does not.
    name_conflict: str = ""
    # Numbers of tenants that may use the models; None while the tenants are unknown.
    access: AccessCounts | None = None
    # Why the spec is no longer allowed, although its revision runs and is kept; empty if it is allowed.
    violation: str = ""
    # Why the service's own spec is refused, while it goes on with an earlier one.
    refusal: Refusal | None = None
    # (reason, message) by revision whose pod or template the API server refused.
    refusals: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    jobs: tuple[ObservedJob, ...] = ()
    # (kind, name) of children of a deleted service of the same name that still exist.
    leftovers: frozenset[tuple[str, str]] = frozenset()
    budget: ObservedBudget = field(default_factory=ObservedBudget)
    # Nodes and ResourceSlices that were read, by source
    devices: Mapping[Source, tuple[Object, ...]] = field(default_factory=dict)

    @property
    def stable(self) -> str | None:
        return self.rollout.stable if self.rollout else None

    def deployment(self, revision: str | None, cohort: str = "") -> ObservedDeployment | None:
        """The Deployment of a side; of several variants, the first by name."""
        return min(
            self.deployments_of(revision, cohort).values(), key=lambda d: d.name, default=None
        )

    def deployments_of(
        self, revision: str | None, cohort: str = ""
    ) -> dict[str, ObservedDeployment]:
        """The Deployments of a side, by variant."""
        side = (revision, cohort)
        return {d.variant: d for d in self.deployments if (d.revision, d.cohort) == side}

    def replicas(self, revision: str | None, cohort: str = "") -> int:
        """Requested replicas of a side, over all variants; without a Deployment its orphaned pods."""
        found = self.deployments_of(revision, cohort).values()
        return sum(d.replicas for d in found) if found else len(self.serving(revision, cohort))

    def preflights(self, revision: str) -> tuple[ObservedPod, ...]:
        """The revision's preflights, by name: one, or one for each variant that is checked apart."""
        found = (
            pod
            for pod in self.pods
            if pod.revision == revision and pod.role == PREFLIGHT and not pod.is_ending
        )
        return tuple(sorted(found, key=lambda pod: pod.name))

    def preflight(self, revision: str) -> ObservedPod | None:
        """The preflight that decides: one that failed, else one that still waits, else one that passed."""
        return min(self.preflights(revision), key=_decides, default=None)

    def evaluation(self, revision: str | None) -> ObservedJob | None:
        """The revision's evaluation Job; a terminating one belongs to an earlier attempt and is ignored."""
        return next((j for j in self.jobs if j.revision == revision and not j.is_ending), None)

    def report(self, job: ObservedJob) -> str:
        """The termination message of this evaluation; not of an earlier one whose pod still exists."""
        said = next(
            (
                pod.termination_message
                for pod in self.pods
                if pod.owner == job.uid and pod.termination_message
            ),
            "",
        )
        return said[-500:] or job.reason or "it has no termination message"

    def engines(self) -> tuple[ObservedPod, ...]:
        """Engine pods of all revisions that have not ended and do not terminate."""
        return tuple(pod for pod in self.pods if pod.is_active_engine)

    def serving(self, revision: str | None, cohort: str | None = None) -> tuple[ObservedPod, ...]:
        """Engine pods of a revision that have not ended and do not terminate. cohort: None for all."""
        return tuple(
            p for p in self.engines() if p.revision == revision and cohort in (None, p.cohort)
        )

    def ended_engines(self) -> tuple[ObservedPod, ...]:
        """Engine pods that ended for good, such as by an eviction, the newest first.

        Kubernetes replaces them and leaves them behind.
        """
        found = (p for p in self.pods if p.role == SERVE and p.is_over and not p.is_ending)
        return tuple(sorted(found, key=lambda pod: pod.created_at, reverse=True))

    def ready(self, revision: str | None, cohort: str | None = None) -> int:
        return sum(pod.is_ready for pod in self.serving(revision, cohort))

    def lacks_room(self, revision: str | None) -> bool:
        """Whether a pod of the revision waits for room, on a node or in a quota."""
        of_revision = (each for each in self.deployments if each.revision == revision)
        return any(pod.is_unschedulable for pod in self.serving(revision)) or any(
            each.exceeds_quota for each in of_revision
        )


def _decides(preflight: ObservedPod) -> int:
    verdict = preflight_result(preflight)
    if verdict is None:
        return 1 if preflight.trouble else 2
    return 3 if verdict.ok else 0
