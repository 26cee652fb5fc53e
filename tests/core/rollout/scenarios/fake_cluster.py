"""A cluster in memory: Deployments make pods, and pods start, fail or find no room."""

import json
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.support.specs.preflight_messages import PASSED, REFUSED

from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.children import ObservedBudget, ObservedDeployment, ObservedJob
from penstock.core.observed.pods import ObservedPod
from penstock.core.routing.pick import Side
from penstock.core.spec.history import Revision
from penstock.core.spec.service import COHORT_LABEL, REVISION_LABEL, VARIANT_LABEL

# Fields that the API server adds to a pod's spec.
POD_DEFAULTS = {"dnsPolicy": "ClusterFirst", "restartPolicy": "Always"}
OVER_QUOTA = "FailedCreate", 'pods "p" is forbidden: exceeded quota: q, requested: pods=1'
START_S = 1_800_000_000.0


class Placed(NamedTuple):
    """Identity of a Deployment among those of the service."""

    revision: str
    cohort: str
    variant: str

    @property
    def side(self):
        return Side(self.revision, self.cohort)


@dataclass
class Cluster:
    """bad: revisions whose pods crash. refused: those whose preflight fails. room: pods that fit. quota:
    pods that may be created. is_held: whether deleted pods stay, as on a lost node.

    bodies: manifests of the Deployments as last applied. repairs: names of the Deployments whose pod
    template was changed.
    """

    room: int = 1000
    quota: int = 1000
    is_held: bool = False
    now_s: float = START_S
    bad: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    deployments: dict[Placed, int] = field(default_factory=dict)
    bodies: dict[Placed, dict] = field(default_factory=dict)
    repairs: list[str] = field(default_factory=list)
    pods: dict[str, ObservedPod] = field(default_factory=dict)
    history: dict[str, Revision] = field(default_factory=dict)
    jobs: dict[str, ObservedJob] = field(default_factory=dict)
    budget: ObservedBudget = field(default_factory=ObservedBudget)
    over_quota: set[Placed] = field(default_factory=set)
    numbers: int = 0

    def observed_deployments(self):
        return tuple(
            ObservedDeployment(
                name_of(placed), name_of(placed), placed.revision, replicas, 0, False,
                self.bodies[placed], OVER_QUOTA if placed in self.over_quota else None,
                placed.cohort, placed.variant,
            )
            for placed, replicas in self.deployments.items()
        )  # fmt: skip

    def placed(self, name):
        """The revision, cohort and variant of the Deployment of this name."""
        return next(placed for placed in self.deployments if name_of(placed) == name)

    def scale(self, name, replicas):
        self.deployments[self.placed(name)] = replicas

    def apply(self, body):
        if body["kind"] == "PodDisruptionBudget":
            metadata = body["metadata"] | {"uid": "budget"}
            self.budget = ObservedBudget(ours=body | {"metadata": metadata})
            return
        labels = body["metadata"]["labels"]
        revision = labels[REVISION_LABEL]
        if body["kind"] == "ControllerRevision":
            self.history[revision] = Revision.of(with_uid(body))
            return
        if body["kind"] == "Job":
            name = body["metadata"]["name"]
            assert name not in self.jobs, "a canary is evaluated once"
            self.jobs[name] = ObservedJob(name, f"{name}@{self.now_s}", revision, "Running")
            return
        assert revision in self.history, "a pod before its revision was remembered"
        placed = Placed(revision, labels.get(COHORT_LABEL, ""), labels.get(VARIANT_LABEL, ""))
        live = self.bodies.get(placed) if placed in self.deployments else None
        if live is not None and with_defaults(live) != with_defaults(body):
            self.repairs.append(name_of(placed))
        self.bodies[placed] = body
        self.deployments.setdefault(placed, body["spec"]["replicas"])

    def run_preflight(self, metadata):
        revision = metadata["labels"][REVISION_LABEL]
        said = REFUSED if revision in self.refused else PASSED
        phase = "Failed" if revision in self.refused else "Succeeded"
        name = metadata["name"]
        self.pods[name] = ObservedPod(
            name, name, revision, "preflight", "", False, False, phase, None, said,
            variant=metadata["labels"].get(VARIANT_LABEL, ""),
        )  # fmt: skip

    def delete(self, deletion):
        if deletion.kind == "Deployment":
            self.deployments = {
                s: n for s, n in self.deployments.items() if name_of(s) != deletion.name
            }
        elif deletion.kind == "PodDisruptionBudget":
            self.budget = ObservedBudget()
        elif deletion.kind == "Job":
            self.jobs.pop(deletion.name, None)
        elif deletion.kind == "Pod":
            self.pods.pop(deletion.name, None)
        else:
            self.history = {r: e for r, e in self.history.items() if e.name != deletion.name}

    def settle_pods(self, *, ready=True):
        """Deployments make and remove pods; those that fit and are not bad become ready."""
        self.over_quota = set()
        for placed, replicas in self.deployments.items():
            mine = [p for p in self.serving() if placed_of(p) == placed]
            # A ReplicaSet removes pods that are not ready first.
            mine.sort(key=lambda pod: (pod.is_ready, pod.name))
            for pod in mine[: max(0, len(mine) - replicas)]:
                self._end(pod)
            for _ in range(replicas - len(mine)):
                if len(self.serving()) >= self.quota:
                    self.over_quota.add(placed)
                    break
                self.numbers += 1
                name = f"{name_of(placed)}-{self.numbers}"
                self.pods[name] = ObservedPod(
                    name, name, placed.revision, "serve", "127.0.0.9", False, False, "Pending", None,
                    "", cohort=placed.cohort, variant=placed.variant,
                )  # fmt: skip
        for pod in self.serving():
            if placed_of(pod) not in self.deployments:
                self._end(pod)
        if not self.is_held:
            self.pods = {name: pod for name, pod in self.pods.items() if not pod.is_ending}
        running = sum(p.phase == "Running" for p in self.serving())
        for pod in self.serving():
            if pod.phase == "Pending":
                if running >= self.room:
                    trouble = ("Unschedulable", "no GPU")
                    self.pods[pod.name] = replace(pod, trouble=trouble)
                    continue
                running += 1
                pod = replace(pod, phase="Running", trouble=None)
                self.pods[pod.name] = pod
            if pod.revision in self.bad:
                trouble = ("CrashLoopBackOff", "boom")
                self.pods[pod.name] = replace(
                    pod, is_ready=False, ready_at=None, trouble=trouble, restarts=2
                )
            elif ready and not pod.is_ready:
                self.pods[pod.name] = replace(
                    pod, is_ready=True, ready_at=timestamp(self.now_s), trouble=None
                )

    def _end(self, pod):
        self.pods[pod.name] = replace(pod, is_ending=True)

    def serving(self):
        return [p for p in self.pods.values() if p.role == "serve" and not p.is_ending]

    def ready(self, revision):
        return sum(p.is_ready for p in self.serving() if p.revision == revision)

    def counts(self):
        """Ready pods by revision."""
        counts = {}
        for pod in self.serving():
            counts[pod.revision] = counts.get(pod.revision, 0) + pod.is_ready
        return counts

    def waits(self):
        """Whether something is left to do for the cluster."""
        return any(n != sum(placed_of(p) == each and p.is_ready for p in self.serving())
                   for each, n in self.deployments.items())  # fmt: skip


def with_defaults(deployment):
    """The pod template as the API server keeps it."""
    template = deployment["spec"]["template"]
    metadata = {k: v for k, v in template["metadata"].items() if k != "creationTimestamp"}
    return {"metadata": metadata, "spec": POD_DEFAULTS | template["spec"]}


def with_uid(body):
    """A copy of the body with a uid, as the API server returns it."""
    body = json.loads(json.dumps(body))
    return {**body, "metadata": {**body["metadata"], "uid": body["metadata"]["name"]}}


def placed_of(pod):
    return Placed(pod.revision, pod.cohort, pod.variant)


def name_of(placed):
    """Name of the Deployment of a side and variant."""
    return "-".join(part for part in ("chat", *placed) if part)
