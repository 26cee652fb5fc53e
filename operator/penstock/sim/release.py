"""Simulates the rollout of a new revision while its service scales, with the operator's rollout code.

scaler -> pods that all traffic needs -> rollout targets -> pods by side -> ready pods
  -> traffic split -> outcomes of requests -> canary judge
"""

from typing import Any

from pydantic import Field, model_validator

from penstock.api.conversion.convert import InvalidService, to_core
from penstock.core.canary.arm import NO_REQUESTS, ArmCounter
from penstock.core.canary.evidence import Block
from penstock.core.canary.judge import judge
from penstock.core.canary.judge_state import JudgeState
from penstock.core.canary.verdict import Verdict
from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.children import ObservedDeployment, ObservedState
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.rollout_phases import JUDGED_PHASES, Phase
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.rollout.inputs import RolloutInputs
from penstock.core.rollout.step import step
from penstock.core.rollout.targets import targets
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import Share
from penstock.core.spec.objectives import Objectives
from penstock.core.spec.service import CONTROL, SERVE, ServiceSpec
from penstock.sim.clock import Clock
from penstock.sim.fleet import Fleet, Pod
from penstock.sim.gateway import STABLE, Gateway
from penstock.sim.profile import Record
from penstock.sim.request import Request
from penstock.sim.rollout.arms import answer_of

NEW = Side("new")
CONTROLS = Side(STABLE.revision, CONTROL)
RECONCILE_PERIOD_S, BLOCK_S = 1.0, 10.0


class Release(Record):
    """A new revision. at_s: time of the spec change. rollout: spec.rollout of the service.

    factor: iteration time of the new revision, as a multiple of the old one's.
    """

    at_s: float = Field(ge=0)
    rollout: dict[str, Any] = Field(default_factory=dict)
    factor: float = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _is_valid(self) -> "Release":
        try:
            rollout = self.service().rollout
        except InvalidService as error:
            raise ValueError(str(error)) from error
        if rollout.canary.mirror is not None or rollout.promotion == "Manual":
            raise ValueError("the simulator copies no requests, and has nobody to say promote")
        return self

    def service(self) -> ServiceSpec:
        """Service with these rollout settings. Raises InvalidService."""
        metadata = {
            "namespace": "default",
            "name": "service",
            "uid": "uid",
            "generation": 1,
            "creationTimestamp": timestamp(0),
        }
        spec = {"model": {"uri": "file:///model"}, "rollout": self.rollout}
        return to_core({"metadata": metadata, "spec": spec})


class Rollout:
    """Applies the scaler's replica count to both revisions. phases: (start time, phase, reason)."""

    def __init__(
        self,
        release: Release,
        objectives: Objectives,
        clock: Clock,
        fleet: Fleet,
        gateway: Gateway,
    ) -> None:
        self.phases: list[tuple[float, Phase, str]] = []
        self._release = release
        self._service = release.service()
        self._objectives = objectives
        self._clock = clock
        self._fleet = fleet
        self._gateway = gateway
        self._deployed: dict[Side, int] = {}
        self._shares: tuple[Share, ...] = (Share(STABLE, 100),)
        self._counts: dict[Side, ArmCounter] = {}
        self._judged: JudgeState | None = None
        self._verdict: Verdict | None = None
        fleet.factors[NEW] = release.factor

    def begin(self) -> None:
        """Start reconciling, after the fleet has its initial pods."""
        replicas = self._deployed[STABLE] = self._fleet.desired
        revision = STABLE.revision
        self.state = RolloutState("Rolling", "Stable", 0.0, "", revision, None, replicas)
        self._clock.schedule_at(RECONCILE_PERIOD_S, self._reconcile_periodically)
        self._clock.schedule_at(BLOCK_S, self._judge)

    def ask(self, replicas: int) -> None:
        """Set the number of pods that all traffic needs. The rollout adds its own on top."""
        self._fleet.desired = replicas
        self._reconcile()

    def finished(self, request: Request) -> None:
        """Count the outcome of a request for the canary judge."""
        side = self._gateway.sides.get(request.pod)
        if side is None or request.outcome == "shed":
            return
        count = self._counts.setdefault(side, ArmCounter())
        if request.outcome == "failed" or request.ttft_s is None:
            count.record_failure()
            return
        violates = not request.meets(self._objectives.ttft_s, self._objectives.tpot_s)
        count.record_answer(answer_of(request, violates=violates))

    def _reconcile_periodically(self) -> None:
        self._reconcile()
        self._clock.schedule_at(self._clock.now + RECONCILE_PERIOD_S, self._reconcile_periodically)

    def _reconcile(self) -> None:
        """Reconcile as the operator does: store a new phase first, then act on it."""
        observed, before = self._observed(), self.state
        is_due = self._clock.now >= self._release.at_s
        inputs = RolloutInputs(
            spec=self._service.rollout,
            observed=observed,
            wanted=NEW.revision if is_due else STABLE.revision,
            total=self._fleet.desired,
            now_s=self._clock.now,
            termination_grace_s=self._service.termination_grace_s,
            verdict=self._verdict,
            applied_generations={},
        )
        self.state = step(before, inputs)
        target = targets(inputs.spec, self.state, observed, inputs.total)
        previous, self._shares = {share.side for share in self._shares}, target.shares
        if target.shares:
            self._gateway.split({share.side: share.percent for share in target.shares})
        if self.state.phase != before.phase:
            self.phases.append((self._clock.now, self.state.phase, self.state.reason))
            self._reconcile()
            return
        for side, replicas in target.pods.items():
            if side in self._deployed or replicas:
                self._scale(side, self._deployed[side] if replicas is None else replicas)
        for side in self._deployed.keys() - target.pods.keys() - previous:
            self._scale(side, 0)
            del self._deployed[side]

    def _scale(self, side: Side, replicas: int) -> None:
        if self._deployed.get(side) != replicas:
            self._deployed[side] = replicas
            self._fleet.scale_side(side, replicas)

    def _observed(self) -> ObservedState:
        return ObservedState(
            deployments=tuple(_deployment(side, n) for side, n in self._deployed.items()),
            pods=(_PREFLIGHT, *map(_pod, self._fleet.pods.values())),
            rollout=self.state,
            traffic=self._shares,
            stable_spec=self._service,
        )

    def _judge(self) -> None:
        """Judge the evidence of the last block of time."""
        self._clock.schedule_at(self._clock.now + BLOCK_S, self._judge)
        counts, self._counts = self._counts, {}
        if self.state.phase not in JUDGED_PHASES or self.state.strategy != "Canary":
            return
        spec = self._service.rollout.canary
        beside = CONTROLS if CONTROLS in self._deployed else STABLE
        canary, control = (
            counts[side].snapshot() if side in counts else NO_REQUESTS for side in (NEW, beside)
        )
        block = Block(length_s=BLOCK_S, canary=canary, control=control)
        self._verdict, self._judged = judge(spec, self._judged or JudgeState.begin(spec), block)


_PREFLIGHT = ObservedPod(
    "preflight", "", NEW.revision, "preflight", "", False, False, "Succeeded", None, ""
)


def _deployment(side: Side, replicas: int) -> ObservedDeployment:
    name = "-".join(filter(None, side))
    return ObservedDeployment(name, name, side.revision, replicas, 0, False, {}, cohort=side.cohort)


def _pod(pod: Pod) -> ObservedPod:
    return ObservedPod(
        name=pod.name,
        uid=pod.name,
        revision=pod.side.revision,
        role=SERVE,
        address="",
        is_ready=pod.phase == "Ready",
        is_ending=pod.phase == "Draining",
        phase="Pending" if pod.scheduled_s is None else "Running",
        trouble=("Unschedulable", "no GPU is free") if pod.scheduled_s is None else None,
        termination_message="",
        created_at=timestamp(pod.created_s),
        ready_at=None if pod.ready_s is None else timestamp(pod.ready_s),
        cohort=pod.side.cohort,
    )
