"""Computes when a rollout has to be evaluated again without an external change."""

from penstock.core.observed.rollout_phases import PHASES
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.rollout.deadlines import (
    progress_deadline_s,
    removal_deadline_s,
)
from penstock.core.rollout.inputs import RolloutInputs
from penstock.core.rollout.routes import RECHECK_S
from penstock.core.rollout.traffic_moves import rollback_until_s


def wake_s(state: RolloutState, inputs: RolloutInputs) -> float | None:
    """Seconds until the passing of time alone may cause an event; None if it cannot."""
    match PHASES[state.phase].awaits:
        case "TrafficToNew" | "TrafficToStable":
            due_s = max(rollback_until_s(state, inputs), inputs.now_s + RECHECK_S)
        case "ReadyPods":
            due_s = progress_deadline_s(state, inputs.spec, inputs.observed, state.revision)
        case "RemovedPods" | "NoPods":
            due_s = removal_deadline_s(state, inputs.termination_grace_s)
        case "Spec" | "Evidence" | "User":
            return None
    return due_s - inputs.now_s if due_s > inputs.now_s else None


def earlier_s(one_s: float | None, other_s: float | None) -> float | None:
    """The earlier of two times in seconds. None: never."""
    return min((each for each in (one_s, other_s) if each is not None), default=None)
