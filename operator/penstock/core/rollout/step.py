"""Advances a rollout by at most one phase: the first detected event that its phase lists."""

from dataclasses import replace

from penstock.core.canary.verdict import Continue
from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.rollout_state import Phase, Rejection, RolloutState
from penstock.core.rollout.events import RolloutInputs, detect_events
from penstock.core.rollout.phases import TRANSITIONS, Event, next_phase
from penstock.core.rollout.targets import percent
from penstock.core.spec.rollout import Strategy

# Events that start a rollout if they lead to one of _FORWARD.
_BEGINNINGS: tuple[Event, ...] = ("RevisionChanged", "RevisionRestored", "ResumedByHand")
_FORWARD: tuple[Phase, ...] = ("Stopping", "Starting", "Replacing")


def begin(inputs: RolloutInputs) -> RolloutState:
    """The first rollout of a service: Recreate, as there is no revision to compare with or to stop."""
    reason = f"revision {inputs.wanted} is the first"
    return RolloutState(
        "Recreate", "Starting", inputs.now_s, reason, None, inputs.wanted, replicas=inputs.total
    )


def step(state: RolloutState, inputs: RolloutInputs) -> RolloutState:
    """The state after at most one transition; unchanged if no event applies."""
    after = _moved(state, inputs)
    if inputs.command is not None and inputs.command.text != after.command:
        # The command is read, whether it had an effect or not.
        after = replace(after, command=inputs.command.text)
    if after.phase == "Judging" and isinstance(inputs.verdict, Continue):
        weight = percent(inputs.verdict.weight, with_control=inputs.spec.has_control)
        after = replace(after, weight_percent=max(after.weight_percent, weight))
    return after


def _moved(state: RolloutState, inputs: RolloutInputs) -> RolloutState:
    for event, reason in detect_events(state, inputs):
        strategy = state.strategy
        if state.is_settled and event in _BEGINNINGS:
            strategy = _strategy(state, inputs)
        if (state.phase, event) in TRANSITIONS[strategy]:
            phase = next_phase(strategy, state.phase, event)
            moved = replace(state, phase=phase, since_s=inputs.now_s, reason=reason)
            if event in _BEGINNINGS and phase in _FORWARD:
                replicas = inputs.total if state.is_settled else state.replicas
                return replace(
                    moved, strategy=strategy, revision=inputs.wanted, replicas=replicas, weight_percent=0,
                    rejected=None,
                )  # fmt: skip
            return _entered(moved, state, event, inputs)
    return state


def _is_rejection(before: RolloutState, event: Event, moved: RolloutState) -> bool:
    """Whether the transition rejects the revision; one that the spec no longer asks for is not rejected."""
    is_left = event in ("RevisionChanged", "RevisionRestored")
    is_first = before.phase != "RollingBack" and moved.rejected is None
    return is_first and not is_left and moved.revision is not None


def _strategy(state: RolloutState, inputs: RolloutInputs) -> Strategy:
    """The strategy to use: BlueGreen instead of Canary while no stable pod is ready to compare with."""
    wanted = inputs.spec.strategy
    serves = inputs.observed.ready(state.stable) > 0
    return "BlueGreen" if wanted == "Canary" and not serves else wanted


def _entered(
    moved: RolloutState, before: RolloutState, event: Event, inputs: RolloutInputs
) -> RolloutState:
    """The state on entry to a phase, with the fields that the phase sets."""
    match moved.phase:
        case "Judging" if before.phase in ("Starting", "Mirroring"):
            weight = percent(inputs.spec.canary.min_weight, with_control=inputs.spec.has_control)
            return replace(moved, weight_percent=weight)
        case "RollingBack" | "Discarding" if _is_rejection(before, event, moved):
            assert moved.revision is not None
            at = timestamp(inputs.now_s)
            return replace(moved, rejected=Rejection(moved.revision, moved.reason, at))
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
        case _:
            return moved
