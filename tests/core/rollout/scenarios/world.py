"""A service in a cluster in memory, with gateways and an operator that can die at any write."""

from dataclasses import dataclass, field, replace

from tests.core.rollout.scenarios.fake_cluster import Cluster
from tests.core.rollout.scenarios.phase_invariants import PHASE_INVARIANTS
from tests.core.rollout.scenarios.plan_step import Step
from tests.core.rollout.scenarios.traffic_invariants import (
    TRAFFIC_INVARIANTS,
    check_deletions,
    check_shares,
)
from tests.support.specs.service_spec import SMALL, service_spec

from penstock.core.observed.children import ObservedState
from penstock.core.reconcile.plan import PlanInputs, plan
from penstock.core.rollout import commands
from penstock.core.spec.revision import revision_of
from penstock.core.spec.service import ServiceSpec

SPEC = service_spec(uid="u1", scaling=replace(SMALL.scaling, max_replicas=20))


class Killed(Exception):
    """The operator died before a write."""


@dataclass
class World(Cluster):
    """Checks invariants of every plan, then carries the plan out.

    dies_at: numbers of the writes before which the operator dies, counted from the start of the world.
    gateways: the traffic generation that each gateway applies. deaf: gateways that keep the one they have.
    silent: gateways that report none. told: shares by generation. verdict: the judge's. shown: the
    judge's on copies of requests.
    """

    spec: ServiceSpec = SPEC
    image: str = "image"
    desired: int = 1
    by_variant: dict[str, int] = field(default_factory=dict)
    specs: dict[str, ServiceSpec] = field(default_factory=dict)
    rollout: object = None
    traffic: tuple = ()
    mirror: object = None
    generation: int = 0
    told: dict[int, tuple] = field(default_factory=lambda: {0: ()})
    gateways: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 0})
    deaf: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    verdict: object = None
    shown: object = None
    command: object = None
    phases: list[str] = field(default_factory=list)
    writes: int = 0
    dies_at: set[int] = field(default_factory=set)

    def observe(self):
        stable = self.rollout.stable if self.rollout else None
        return ObservedState(
            deployments=self.observed_deployments(),
            pods=tuple(self.pods.values()),
            history=tuple(self.history.values()),
            rollout=self.rollout,
            traffic=self.traffic,
            mirror=self.mirror,
            traffic_generation=self.generation,
            stable_spec=self._spec_of(stable) if stable in self.specs else None,
            jobs=tuple(self.jobs.values()),
            budget=self.budget,
        )

    def _spec_of(self, revision):
        """The spec of a revision with the current variants, which are not part of a revision."""
        return replace(self.specs[revision], variants=self.spec.variants)

    def reconcile(self, *, writes=10**6):
        """Reconcile as the controller does; it dies after `writes` writes, the status last."""
        try:
            return self._reconcile(writes)
        except Killed:
            return None

    def _reconcile(self, writes):
        wanted = revision_of(self.spec)
        self.specs[wanted] = self.spec
        observed = self.observe()
        given = self._plan_inputs()
        made = plan(self.spec, observed, self.image, self.now_s, given)
        self.check(made, given)
        budget = iter(range(writes))

        def write():
            self.writes += 1
            if next(budget, None) is None or self.writes in self.dies_at:
                raise Killed

        for body in made.apply:
            write()
            self.apply(body)
        for body in made.create:
            write()
            self.run_preflight(body["metadata"])
        for scale in made.scale:
            write()
            self.scale(scale.deployment, scale.replicas)
        for deletion in made.delete:
            write()
            self.delete(deletion)
        if (made.rollout, made.shares, made.mirror) != (self.rollout, self.traffic, self.mirror):
            write()
            if self.rollout is None or made.rollout.phase != self.rollout.phase:
                self.phases.append(made.rollout.phase)
            # The status keeps times to the second.
            self.rollout = replace(made.rollout, since_s=float(int(made.rollout.since_s)))
            self.traffic, self.mirror = made.shares, made.mirror
            self.generation = made.generation
            self.told[made.generation] = made.shares
        return made

    def _plan_inputs(self):
        under_way = self.rollout is not None and self.rollout.phase in (
            "Judging", "Paused", "Growing",
        )  # fmt: skip
        applied_generations = {g: None if g in self.silent else n for g, n in self.gateways.items()}
        verdict = self.verdict if under_way else None
        if self.rollout is not None and self.rollout.phase == "Mirroring":
            verdict = self.shown
        return PlanInputs(self.desired, verdict, self.command, applied_generations, self.by_variant)

    def follow(self):
        """Tell the gateways the traffic split."""
        for gateway in self.gateways.keys() - self.deaf:
            self.gateways[gateway] = self.generation

    def check(self, made, given):
        check_shares(self, made)
        check_deletions(self, made)
        if self.rollout is None or made.rollout.phase != self.rollout.phase:
            assert made.is_empty, "a phase is acted on before it is written down"
        if self.rollout is not None:
            step = Step(self, made, given, self.rollout)
            for check in (*PHASE_INVARIANTS, *TRAFFIC_INVARIANTS):
                check(step)

    def run(self, rounds=200, *, each_s=2.0):
        """Undisturbed, until the rollout has settled and the plan empty; the phases on the way."""
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
            if is_done and made.rollout.is_settled and not self.waits():
                return self.phases[since:]
        raise AssertionError(f"not settled: {self.phases[since:]}, {self.rollout}")

    def weights(self):
        return {(s.side.revision, s.side.cohort): s.percent for s in self.traffic}

    def change(self, seed=1):
        """Another revision is wanted; its name, and that of the old."""
        old = revision_of(self.spec)
        self.spec = replace(self.spec, settings={**self.spec.settings, "engine.seed": seed})
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
