"""Plans the next writes for one service, level-triggered: from its spec and its observed objects.

    rollout state -> target pods and traffic of its phase
      -> revision history -> preflight -> Deployments -> replicas -> deletions

A new phase is stored in the status before anything is done for it, and traffic is moved away from pods
before they are deleted. A plan for the result of a plan is empty.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.canary.verdict import Verdict
from penstock.core.observed.accelerator_memory import Source
from penstock.core.observed.children import ObservedState
from penstock.core.observed.preflight import repetition_cause
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.reconcile.plan_steps import Deletion, PlanSteps, Scale, repetition_time_s
from penstock.core.reconcile.variant_split import choose_variant_split
from penstock.core.rollout.at_zero import may_stay_at_zero
from penstock.core.rollout.commands import Command
from penstock.core.rollout.inputs import RolloutInputs
from penstock.core.rollout.routes import AppliedGenerations
from penstock.core.rollout.step import begin, step
from penstock.core.rollout.targets import Targets, targets
from penstock.core.rollout.waiting import overdue, waiting_for
from penstock.core.rollout.wake import earlier_s, wake_s
from penstock.core.routing.traffic_split import RolloutMirror, Share
from penstock.core.spec.revision import revision_of
from penstock.core.spec.service import PREFLIGHT, Object, ServiceSpec


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """Inputs of a plan that are not read from the API server. None: not available.

    desired, by_variant: the scaler's replicas, in total and by variant. verdict: of the canary's judge,
    on the revision that is rolled out. command: the user's last rollout command. applied_generations:
    the traffic generation that each gateway applies.
    """

    desired: int | None = None
    verdict: Verdict | None = None
    command: Command | None = None
    applied_generations: AppliedGenerations | None = None
    by_variant: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """The next rollout state and the writes to make. Fields that hold writes stand in their order."""

    revision: str  # the spec's
    rollout: RolloutState
    shares: tuple[Share, ...]
    mirror: RolloutMirror | None = None
    generation: int = 0  # of shares and mirror, incremented with each change of them
    total: int = 0  # replicas that all of the traffic needs
    wake_s: float | None = None  # seconds until the next plan if nothing changes
    waiting_for: str = ""  # what the phase waits for, in words
    overdue: str = ""  # message about a phase that exceeded its deadline and continues; else empty
    apply: tuple[Object, ...] = ()
    create: tuple[Object, ...] = ()
    # Pods to create in place of pods that are forbidden, by the names of these
    larger: Mapping[str, Object] = field(default_factory=dict)
    scale: tuple[Scale, ...] = ()
    delete: tuple[Deletion, ...] = ()
    details: tuple[str, ...] = field(default=())  # the writes in words, for the log
    # Kinds of objects that were not read and on which the arguments of a preflight depend
    unread: frozenset[Source] = frozenset()

    @property
    def is_empty(self) -> bool:
        return not (self.create or self.apply or self.scale or self.delete)


def plan(
    spec: ServiceSpec,
    observed: ObservedState,
    image: str,
    now_s: float,
    inputs: PlanInputs = PlanInputs(),
) -> Plan:
    """Plan the next writes for a service.

    image: of the engine, for revisions without recorded pods. A revision that the API server refused
    does not affect the one that serves.
    """
    wanted = revision_of(spec)
    total = replicas_for_all(spec, observed, inputs.desired)
    given = RolloutInputs(
        spec.rollout, observed, wanted, total, now_s, spec.termination_grace_s,
        inputs.verdict, inputs.command, inputs.applied_generations,
    )  # fmt: skip
    before = observed.rollout
    state = begin(given) if before is None else step(before, given)
    target = targets(spec.rollout, state, observed, total)
    is_new = before is None or (state.phase, state.revision) != (before.phase, before.revision)
    variant_split = choose_variant_split(spec, observed, inputs.by_variant, total)
    steps = PlanSteps(spec, observed, image, wanted, variant_split, now_s)
    if not is_new:
        steps.collect(state, target.pods, total)
    return _assemble(state, given, target, steps, is_new=is_new)


def _assemble(
    state: RolloutState, given: RolloutInputs, target: Targets, steps: PlanSteps, *, is_new: bool
) -> Plan:
    """The plan for a rollout state. is_new: whether the state has to be stored before anything is done."""
    observed = given.observed
    is_rerouted = (target.shares, target.mirror) != (observed.traffic, observed.mirror)
    retry_s = _until_repetition_time_s(observed, given.now_s)
    return Plan(
        revision=given.wanted,
        total=given.total,
        rollout=state,
        shares=target.shares,
        mirror=target.mirror,
        generation=observed.traffic_generation + is_rerouted,
        wake_s=0.0 if is_new else earlier_s(wake_s(state, given), retry_s),
        waiting_for="" if is_new else waiting_for(state, given),
        overdue="" if is_new else overdue(state, given),
        apply=tuple(steps.apply),
        create=tuple(steps.create),
        larger=steps.larger,
        scale=tuple(steps.scale),
        delete=tuple(steps.delete),
        details=tuple(steps.details),
        unread=steps.unread,
    )


def replicas_for_all(spec: ServiceSpec, observed: ObservedState, desired: int | None) -> int:
    """The number of pods that all of the traffic needs; a rollout adds its own.

    desired: the scaler's last decision. None: the number stays what it was when the rollout started.
    """
    state = observed.rollout
    serving = observed.deployment(observed.stable)
    current = observed.replicas(observed.stable) if serving else observed.stored_total or 1
    if state is not None and not state.is_settled:
        current = state.replicas
    match spec.scaling.mode:
        case "External":
            return spec.external_replicas
        case "Active":
            number = current if desired is None else desired
            # A revision of a service at zero is tried with one replica of each side, or with none.
            least = 0 if may_stay_at_zero(spec.rollout, state) else 1
            return min(max(number, least, spec.scaling.min_replicas), spec.scaling.max_replicas)
        case "DryRun":
            return current


def _until_repetition_time_s(observed: ObservedState, now_s: float) -> float | None:
    """Seconds until the next preflight is repeated; None if none is due later."""
    due = (pod for pod in observed.pods if pod.role == PREFLIGHT and repetition_cause(pod))
    return min((s for pod in due if (s := repetition_time_s(pod) - now_s) > 0), default=None)
