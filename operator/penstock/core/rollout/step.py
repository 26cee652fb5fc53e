"""Advances a rollout by at most one phase: the first detected event that its phase lists."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from penstock.core.canary.verdict import Continue, Verdict
from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.rollout_phases import PHASES
from penstock.core.observed.rollout_state import Rejection, RolloutState
from penstock.core.rollout.at_zero import is_accepted_at_zero
from penstock.core.rollout.commands import Command
from penstock.core.rollout.events import detect_events
from penstock.core.rollout.inputs import RolloutInputs
from penstock.core.rollout.phases import TRANSITIONS, Event, next_phase
from penstock.core.rollout.targets import percent
from penstock.core.rollout.user_requests import EventWithReason
from penstock.core.spec.rollout import Strategy

# Events that start a rollout if they lead to a phase with which one begins.
_BEGINNINGS: tuple[Event, ...] = ("RevisionChanged", "RevisionRestored", "ResumedByHand")


@dataclass(frozen=True, slots=True)
class Context:
    """Inputs of a transition besides its event.

    wanted: the revision of the spec. total: replicas for all of the traffic. strategy: of a rollout that
    begins now. min_weight_percent: the first share of a canary.
    """

    now_s: float
    wanted: str
    total: int
    strategy: Strategy
    min_weight_percent: int


def begin(inputs: RolloutInputs) -> RolloutState:
    """The first rollout of a service: Recreate, as there is no revision to compare with or to stop."""
    reason = f"revision {inputs.wanted} is the first"
    return RolloutState(
        "Recreate", "Starting", inputs.now_s, reason, None, inputs.wanted, replicas=inputs.total
    )


def step(state: RolloutState, inputs: RolloutInputs) -> RolloutState:
    """The state of a service after at most one transition; unchanged if no event applies."""
    canary, with_control = inputs.spec.canary, inputs.spec.has_control
    context = Context(
        now_s=inputs.now_s,
        wanted=inputs.wanted,
        total=inputs.total,
        strategy=_strategy(state, inputs),
        min_weight_percent=percent(canary.min_weight, with_control=with_control),
    )
    weight = _earned_percent(inputs.verdict, with_control=with_control)
    after = advance(state, detect_events(state, inputs), context, inputs.command, weight)
    if state.stable is None and after.phase == "Stable":
        # A first revision is up. It had no strategy, and the status names the one that the next will have.
        return replace(after, strategy=inputs.spec.strategy)
    return after


def advance(
    state: RolloutState,
    events: Iterable[EventWithReason],
    context: Context,
    command: Command | None,
    earned_percent: int,
) -> RolloutState:
    """The state after the first event that its phase lists.

    command: the user's last, which counts as read. earned_percent: the canary's share of the traffic by the
    last verdict.
    """
    after = _moved(state, events, context)
    if command is not None and command.text != after.command:
        # The command is read, whether it had an effect or not.
        after = replace(after, command=command.text)
    if PHASES[after.phase].collects_evidence and earned_percent > after.weight_percent:
        after = replace(after, weight_percent=earned_percent)
    return after


def _earned_percent(verdict: Verdict | None, *, with_control: bool) -> int:
    """The share that a verdict gives a canary; 0 if it says nothing of it."""
    return (
        percent(verdict.weight, with_control=with_control) if isinstance(verdict, Continue) else 0
    )


def _moved(
    state: RolloutState, events: Iterable[EventWithReason], context: Context
) -> RolloutState:
    for event, reason in events:
        strategy = state.strategy
        if state.is_settled and event in _BEGINNINGS:
            strategy = context.strategy
        if (state.phase, event) in TRANSITIONS[strategy]:
            phase = next_phase(strategy, state.phase, event)
            moved = replace(state, phase=phase, since_s=context.now_s, reason=reason)
            if event in _BEGINNINGS and PHASES[phase].is_first:
                replicas = context.total if state.is_settled else state.replicas
                return replace(
                    moved, strategy=strategy, revision=context.wanted, replicas=replicas,
                    weight_percent=0, rejected=None,
                )  # fmt: skip
            return _entered(moved, state, event, context)
    return state


def _rejected(
    moved: RolloutState, before: RolloutState, event: Event, now_s: float
) -> RolloutState:
    """The state with the rejection of its revision, unless the spec no longer asks for it."""
    is_left = event in ("RevisionChanged", "RevisionRestored")
    is_given_up = PHASES[before.phase].awaits == "TrafficToStable" or moved.rejected is not None
    if is_given_up or is_left or moved.revision is None:
        return moved
    return replace(moved, rejected=Rejection(moved.revision, moved.reason, timestamp(now_s)))


def _strategy(state: RolloutState, inputs: RolloutInputs) -> Strategy:
    """The strategy to use.

    BlueGreen instead of Canary while no stable pod is ready to compare with. Rolling at zero replicas, if a
    revision is accepted there.
    """
    if is_accepted_at_zero(inputs.spec, inputs.total):
        return "Rolling"
    wanted = inputs.spec.strategy
    serves = inputs.observed.ready(state.stable) > 0
    return "BlueGreen" if wanted == "Canary" and not serves else wanted


def _entered(
    moved: RolloutState, before: RolloutState, event: Event, context: Context
) -> RolloutState:
    """The state on entry to a phase, with the fields that the phase sets."""
    match moved.phase:
        case "Judging":
            if PHASES[before.phase].is_judged:  # it was paused, and keeps its share
                return moved
            return replace(moved, weight_percent=context.min_weight_percent)
        case "RollingBack" | "Discarding":
            return _rejected(moved, before, event, context.now_s)
        case "Starting":  # Recreate: the old pods are gone
            return replace(moved, stable=None)
        case "Draining":
            return replace(moved, stable=moved.revision, revision=None, weight_percent=0)
        case "Stable":
            return replace(
                moved,
                stable=moved.revision or moved.stable,
                revision=None,
                weight_percent=0,
                rejected=None,
            )
        case "Rejected":
            return replace(moved, revision=None, weight_percent=0)
        case (
            "Stopping" | "Mirroring" | "Waiting" | "Paused" | "Growing" | "Replacing" | "Promoting"
        ):
            return moved
