"""A small cluster for planners: Deployments make pods, pods start or fail, and operators die."""

import json
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pytest
from service_spec import SMALL, service_spec

from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.children import (
    Observed,
    ObservedBudget,
    ObservedDeployment,
    ObservedJob,
    ObservedPod,
)
from penstock.core.reconcile.plan import PlanInputs, plan
from penstock.core.rollout import commands
from penstock.core.rollout.routes import GATEWAY_TIMEOUT_S
from penstock.core.routing.pick import Side
from penstock.core.spec.history import Revision
from penstock.core.spec.revision import revision_of
from penstock.core.spec.rollout import RolloutSpec
from penstock.core.spec.service import (
    COHORT_LABEL,
    REVISION_LABEL,
    VARIANT_LABEL,
    ServiceSpec,
)

SPEC = service_spec(uid="u1", scaling=replace(SMALL.scaling, max_replicas=20))
PASSED = '{"ok": true, "architecture": "Q", "weights_bytes": 1, "kv_capacity_tokens": 9}'
REFUSED = '{"ok": false, "reason": "ModelNotFound", "message": "no model"}'
DEFAULTS = {"dnsPolicy": "ClusterFirst", "restartPolicy": "Always"}
START_S = 1_800_000_000.0


class Placed(NamedTuple):
    """Which Deployment it is."""

    revision: str
    cohort: str
    variant: str

    @property
    def side(self):
        return Side(self.revision, self.cohort)


class Killed(Exception):
    """The operator died before a write."""


@dataclass
class World:
    """bad: revisions whose pods crash. refused: those whose preflight fails. room: pods that fit.

    dies_at: writes, by their number, before which the operator dies; after one is before the next.

    gateways: the generation of the traffic that each obeys; deaf: those that do not follow; silent:
    those that do not answer. told: the shares of each generation. verdict: of the judge, shown: the
    verdict on shadow copies. bodies: of Deployments, as they were applied last. repairs: those whose pods
    were next_replicas by a change of their template.
    """

    spec: ServiceSpec = SPEC
    image: str = "image"
    desired: int = 1
    room: int = 1000
    now_s: float = START_S
    bad: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    by_variant: dict[str, int] = field(default_factory=dict)
    deployments: dict[Placed, int] = field(default_factory=dict)
    bodies: dict[Placed, dict] = field(default_factory=dict)
    repairs: list[str] = field(default_factory=list)
    pods: dict[str, ObservedPod] = field(default_factory=dict)
    history: dict[str, Revision] = field(default_factory=dict)
    jobs: dict[str, ObservedJob] = field(default_factory=dict)
    specs: dict[str, ServiceSpec] = field(default_factory=dict)
    budget: ObservedBudget = field(default_factory=ObservedBudget)
    rollout: object = None
    traffic: tuple = ()
    copies: object = None
    generation: int = 0
    told: dict[int, tuple] = field(default_factory=lambda: {0: ()})
    gateways: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 0})
    deaf: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    verdict: object = None
    shown: object = None
    command: object = None
    phases: list[str] = field(default_factory=list)
    numbers: int = 0
    writes: int = 0
    dies_at: set[int] = field(default_factory=set)

    def look(self):
        stable = self.rollout.stable if self.rollout else None
        return Observed(
            deployments=tuple(self._deployment(*each) for each in self.deployments.items()),
            pods=tuple(self.pods.values()),
            history=tuple(self.history.values()),
            rollout=self.rollout,
            traffic=self.traffic,
            copies=self.copies,
            traffic_generation=self.generation,
            stable_spec=self._spec_of(stable) if stable in self.specs else None,
            jobs=tuple(self.jobs.values()),
            budget=self.budget,
        )

    def _spec_of(self, revision):
        """Variants are of no revision."""
        return replace(self.specs[revision], variants=self.spec.variants)

    def _deployment(self, placed, replicas):
        return ObservedDeployment(
            name_of(placed), name_of(placed), placed.revision, replicas, 0, False,
            self.bodies[placed], cohort=placed.cohort, variant=placed.variant,
        )  # fmt: skip

    def reconcile(self, *, writes=10**6):
        """Reconcile as the controller does; it dies after `writes` writes, the status last."""
        try:
            return self._reconcile(writes)
        except Killed:
            return None

    def _reconcile(self, writes):
        wanted = revision_of(self.spec)
        self.specs[wanted] = self.spec
        observed = self.look()
        made = plan(self.spec, observed, self.image, self.now_s, self._plan_inputs())
        self.check(made)
        budget = iter(range(writes))

        def write():
            self.writes += 1
            if next(budget, None) is None or self.writes in self.dies_at:
                raise Killed

        for body in made.apply:
            write()
            self._apply(body)
        for body in made.create:
            write()
            self._preflight(body["metadata"]["labels"][REVISION_LABEL])
        for scale in made.scale:
            write()
            placed = next(p for p in self.deployments if name_of(p) == scale.deployment)
            self.deployments[placed] = scale.replicas
        for deletion in made.delete:
            write()
            self._delete(deletion)
        if (made.rollout, made.shares, made.copies) != (self.rollout, self.traffic, self.copies):
            write()
            if self.rollout is None or made.rollout.phase != self.rollout.phase:
                self.phases.append(made.rollout.phase)
            # The status keeps times to the second.
            self.rollout = replace(made.rollout, since_s=float(int(made.rollout.since_s)))
            self.traffic, self.copies = made.shares, made.copies
            self.generation = made.generation
            self.told[made.generation] = made.shares
        return made

    def _plan_inputs(self):
        under_way = self.rollout is not None and self.rollout.phase in (
            "Judging", "Paused", "Growing",
        )  # fmt: skip
        applied_generations = {g: None if g in self.silent else n for g, n in self.gateways.items()}
        verdict = self.verdict if under_way else None
        if self.rollout is not None and self.rollout.phase == "Shadowing":
            verdict = self.shown
        return PlanInputs(self.desired, verdict, self.command, applied_generations, self.by_variant)

    def follow(self):
        """Tell the gateways the traffic split."""
        for gateway in self.gateways.keys() - self.deaf:
            self.gateways[gateway] = self.generation

    def check(self, made):
        told = {share.side for share in self.traffic}
        is_due = f"after {GATEWAY_TIMEOUT_S:.0f} s" in made.rollout.reason
        if made.rollout.phase in ("Draining", "Discarding") and not is_due:
            applied = {s.side for g in self.gateways.values() for s in self.told[g]}
            # A control goes when its stable has enough pods, and the gateway tries one of those.
            told |= {side for side in applied if not side.cohort}
        for deletion in made.delete:
            if deletion.kind == "Deployment":
                gone = next(
                    placed for placed in self.deployments if name_of(placed) == deletion.name
                )
                is_replaced = gone.variant not in self.spec.placed and any(
                    pod.is_ready for pod in self.serving()
                    if pod.side == gone.side and pod.variant in self.spec.placed
                )  # fmt: skip
                assert gone.side not in told or is_replaced, "pods with traffic are deleted"
        if self.rollout is None or made.rollout.phase != self.rollout.phase:
            assert made.is_empty, "a phase is acted on before it is written down"
        weights = [share.weight for share in made.shares]
        assert not weights or sum(weights) == 100
        assert all(weight > 0 for weight in weights)
        ready = {share.side.revision: self.ready(share.side.revision) for share in made.shares}
        if made.rollout.phase != "Stopping" and any(self.ready(side.revision) for side in told):
            assert any(ready.values()), f"{made.rollout.phase}: nobody ready has the traffic"
        if any(ready.values()):
            assert all(ready.values()), f"traffic for a revision without ready pods: {made.shares}"

    def ready(self, revision):
        return sum(p.is_ready for p in self.pods.values() if p.revision == revision)

    def _apply(self, body):
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
        self.deployments.setdefault(placed, 1)

    def _preflight(self, revision):
        said = REFUSED if revision in self.refused else PASSED
        phase = "Failed" if revision in self.refused else "Succeeded"
        name = f"{revision}-preflight"
        self.pods[name] = ObservedPod(
            name, name, revision, "preflight", "", False, False, phase, None, said
        )

    def _delete(self, deletion):
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
        for placed, replicas in self.deployments.items():
            mine = [p for p in self.serving() if placed_of(p) == placed]
            # A ReplicaSet removes pods that are not ready first.
            mine.sort(key=lambda pod: (pod.is_ready, pod.name))
            for pod in mine[: max(0, len(mine) - replicas)]:
                del self.pods[pod.name]
            for _ in range(replicas - len(mine)):
                self.numbers += 1
                name = f"{name_of(placed)}-{self.numbers}"
                self.pods[name] = ObservedPod(
                    name, name, placed.revision, "serve", "127.0.0.9", False, False, "Pending", None,
                    "", cohort=placed.cohort, variant=placed.variant,
                )  # fmt: skip
        for pod in self.serving():
            if placed_of(pod) not in self.deployments:
                del self.pods[pod.name]
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

    def serving(self):
        return [p for p in self.pods.values() if p.role == "serve"]

    def run(self, rounds=200, *, each_s=2.0):
        """Undisturbed, until the rollout is calm and the plan empty; the phases on the way."""
        since = len(self.phases)
        for _ in range(rounds):
            self.settle_pods()
            self.follow()
            before = self.rollout, self.traffic
            made = self.reconcile()
            self.now_s += each_s
            if made is None:
                continue
            is_done = made.is_empty and (made.rollout, made.shares) == before
            if is_done and made.rollout.is_calm and not self.waits():
                return self.phases[since:]
        raise AssertionError(f"not calm: {self.phases[since:]}, {self.rollout}")

    def counts(self):
        """Ready pods by revision."""
        counts = {}
        for pod in self.serving():
            counts[pod.revision] = counts.get(pod.revision, 0) + pod.is_ready
        return counts

    def weights(self):
        return {(s.side.revision, s.side.cohort): s.weight for s in self.traffic}

    def change(self, seed=1):
        """Another revision is wanted; its name, and that of the old."""
        old = revision_of(self.spec)
        self.spec = replace(self.spec, seed=seed)
        return revision_of(self.spec), old

    def order(self, action):
        self.numbers += 1
        state = self.rollout
        rejected = state.rejected.revision if state.rejected else ""
        revision = state.revision or rejected or "0" * 8
        self.command = commands.parse_command(
            commands.format_command(action, revision, f"n{self.numbers}")
        )

    def until(self, phase, rounds=100):
        for _ in range(rounds):
            if self.rollout.phase == phase:
                return
            self.settle_pods()
            self.follow()
            self.reconcile()
            self.now_s += 2
        raise AssertionError(f"never {phase}: {self.phases}")

    def waits(self):
        """Whether something is left to do for the cluster."""
        return any(n != sum(placed_of(p) == each and p.is_ready for p in self.serving())
                   for each, n in self.deployments.items())  # fmt: skip


def with_defaults(deployment):
    """The pod template as the API server keeps it."""
    template = deployment["spec"]["template"]
    metadata = {k: v for k, v in template["metadata"].items() if k != "creationTimestamp"}
    return {"metadata": metadata, "spec": DEFAULTS | template["spec"]}


def with_uid(body):
    """A copy of the body with a uid, as the API server returns it."""
    body = json.loads(json.dumps(body))
    return {**body, "metadata": {**body["metadata"], "uid": body["metadata"]["name"]}}


def placed_of(pod):
    return Placed(pod.revision, pod.cohort, pod.variant)


def name_of(placed):
    """Name of the Deployment of a side and variant."""
    return "-".join(part for part in ("chat", *placed) if part)


@pytest.fixture(scope="session")
def make_world():
    return World


@pytest.fixture(scope="session")
def defaults():
    """Defaults that the API server adds to a pod's spec."""
    return DEFAULTS


@pytest.fixture
def begun():
    """`begun(strategy, replicas, …)` -> a service that serves its first revision."""

    def make(strategy="Canary", replicas=4, **rollout):
        world = World(desired=replicas)
        world.spec = replace(world.spec, rollout=RolloutSpec(strategy=strategy, **rollout))
        assert world.run() == ["Starting", "Stable"]
        assert world.counts() == {revision_of(world.spec): replicas}
        return world

    return make
