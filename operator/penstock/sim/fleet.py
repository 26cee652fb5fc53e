"""The pods of one service, managed as a Deployment would.

    created -> (waits for a GPU) -> Starting -> Ready -> Draining -> removed

A scale-down removes starting pods first, the youngest before the others; then ready pods with the least
KV in use, which finish their requests. A crashed pod restarts in place.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from penstock.core.routing.pick import Side
from penstock.core.scaling.signals import PodPhase
from penstock.core.scaling.variants.cheapest import Offer, cheapest_first
from penstock.sim.clock import Clock
from penstock.sim.engine.engine import Engine
from penstock.sim.gateway import STABLE, Gateway
from penstock.sim.profile import Profile
from penstock.sim.quota import Quota


@dataclass(slots=True)
class Pod:
    """Simulated engine pod."""

    name: str
    created_s: float
    engine: Engine
    variant: str = ""
    side: Side = STABLE
    phase: PodPhase = "Starting"
    scheduled_s: float | None = None  # when it got its GPUs
    ready_s: float | None = None
    num_starts: int = 0  # container starts so far


@dataclass(slots=True)
class Census:
    """Pod counts by state from `at_s` on. Waiting pods hold no GPU. by_variant: pods that hold GPUs."""

    at_s: float
    waiting: int
    starting: int
    ready: int
    draining: int
    by_variant: dict[str, int]

    @property
    def held(self) -> int:
        return self.starting + self.ready + self.draining


@dataclass(slots=True)
class Fleet:
    """All pods of one service."""

    name: str
    profiles: dict[str, Profile]  # engine by variant
    offers: tuple[Offer, ...]  # variants by price; a rule without variants gets the cheapest first
    clock: Clock
    gateway: Gateway
    quota: Quota
    random: Random
    prefix_block_tokens: int = 0
    start_factor: float = 1.0  # multiple of the start-up time
    crash_share: float = 0.0  # share of starts that fail half-way
    # Multiple of the iteration time by side, 1 where absent
    factors: dict[Side, float] = field(default_factory=dict)
    desired: int = 0
    by_variant: dict[str, int] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    census: list[Census] = field(default_factory=list)  # pod counts after each change
    pod_ready_s: list[float] = field(default_factory=list)
    _num_created: int = 0

    def begin(self, by_variant: dict[str, int]) -> None:
        """Create the initial pods, ready at time 0."""
        self.desired, self.by_variant = sum(by_variant.values()), dict(by_variant)
        for variant, replicas in by_variant.items():
            for _ in range(replicas):
                pod = self._create(STABLE, variant)
                if self._has_gpus(pod):
                    self._ready(pod)
        self.count()

    def scale(self, replicas: int) -> None:
        if replicas == self.desired:
            return
        counts = cheapest_first(self.offers, replicas)
        names = (offer.name for offer in self.offers)
        self.scale_variants(dict(zip(names, counts, strict=True)))

    def scale_variants(self, by_variant: Mapping[str, int]) -> None:
        if by_variant == self.by_variant:
            return
        self.desired, self.by_variant = sum(by_variant.values()), dict(by_variant)
        for variant, replicas in by_variant.items():
            self.scale_side(STABLE, replicas, variant)

    def of_side(self, side: Side, variant: str) -> list[Pod]:
        """Pods of this side and variant, without draining ones."""
        pods = self.pods.values()
        mine = (side, variant)
        return [p for p in pods if (p.side, p.variant) == mine and p.phase != "Draining"]

    def scale_side(self, side: Side, replicas: int, variant: str = "") -> None:
        current = self.of_side(side, variant)
        for _ in range(len(current), replicas):
            self._schedule(self._create(side, variant))
        for pod in sorted(current, key=self._cost_of_losing)[: max(0, len(current) - replicas)]:
            self._remove(pod)
        self.count()

    def of_phase(self, phase: PodPhase) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.phase == phase]

    def crash(self, pod: Pod) -> None:
        """Crash the engine of a pod. Its requests are lost; its container restarts unless the pod drains."""
        if pod.phase == "Starting":
            self._start(pod)
            return
        if pod.phase == "Ready":
            self.gateway.remove_engine(pod.name)
        lost = pod.engine.crash()
        if pod.phase == "Draining":
            self._gone(pod)
        else:
            pod.phase, pod.ready_s = "Starting", None
            pod.engine = self._engine(pod.side, pod.variant)
            self._start(pod)
        self.gateway.lost(lost)
        self.count()

    def schedule_waiting(self) -> None:
        """Schedule waiting pods after GPUs were released."""
        for pod in list(self.pods.values()):
            if pod.scheduled_s is None:
                self._schedule(pod)

    def count(self) -> None:
        phases = [pod.phase for pod in self.pods.values()]
        waiting = sum(pod.scheduled_s is None for pod in self.pods.values())
        holding = [pod.variant for pod in self.pods.values() if pod.scheduled_s is not None]
        self.census.append(
            Census(
                self.clock.now,
                waiting,
                phases.count("Starting") - waiting,
                phases.count("Ready"),
                phases.count("Draining"),
                {variant: holding.count(variant) for variant in self.profiles},
            )
        )

    def _engine(self, side: Side, variant: str) -> Engine:
        # A random stream per engine, so that one engine's draws do not change another's.
        random = Random(self.random.getrandbits(64))
        profile = self.profiles[variant]
        engine = Engine(profile, self.clock, self.gateway, random, self.prefix_block_tokens)
        engine.factor = self.factors.get(side, 1.0)
        return engine

    def _create(self, side: Side, variant: str) -> Pod:
        self._num_created += 1
        name = f"{self.name}-{self._num_created}"
        engine = self._engine(side, variant)
        pod = self.pods[name] = Pod(name, self.clock.now, engine, variant, side)
        return pod

    def _has_gpus(self, pod: Pod) -> bool:
        if pod.scheduled_s is None and self.quota.take(self.profiles[pod.variant]):
            pod.scheduled_s = self.clock.now
        return pod.scheduled_s is not None

    def _schedule(self, pod: Pod) -> None:
        if self._has_gpus(pod):
            self._start(pod)

    def _start(self, pod: Pod) -> None:
        pod.num_starts += 1
        start_up = self.profiles[pod.variant].start_up
        duration_s = start_up.duration_s(self.random.gauss(0, 1)) * self.start_factor
        fails = self.random.random() < self.crash_share
        this_start = pod.num_starts
        end = self.crash if fails else self._ready

        def started() -> None:
            if pod.phase == "Starting" and pod.num_starts == this_start and pod.name in self.pods:
                end(pod)

        self.clock.schedule_at(self.clock.now + duration_s * (0.5 if fails else 1.0), started)

    def _ready(self, pod: Pod) -> None:
        pod.phase, pod.ready_s = "Ready", self.clock.now
        if pod.scheduled_s is not None and pod.num_starts == 1:
            self.pod_ready_s.append(self.clock.now - pod.created_s)
        self.count()
        self.gateway.add_engine(pod.name, pod.engine, pod.side)

    def _cost_of_losing(self, pod: Pod) -> tuple[bool, float]:
        if pod.phase == "Starting":
            return False, -pod.created_s
        return True, pod.engine.kv_tokens

    def _remove(self, pod: Pod) -> None:
        if pod.phase == "Starting":
            self._gone(pod)
            return
        pod.phase = "Draining"
        self.gateway.remove_engine(pod.name)
        pod.engine.drain(lambda: self._gone(pod))

    def _gone(self, pod: Pod) -> None:
        if self.pods.pop(pod.name, None) is None:
            return
        if pod.scheduled_s is not None:
            self.quota.give_back(self.profiles[pod.variant])
        self.count()
