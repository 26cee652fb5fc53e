"""When to look again though nothing changed."""

from penstock.core.observed.rollout_state import RolloutState
from penstock.core.rollout.events import HASTY, RolloutInputs, deadline_s, kept_until_s
from penstock.core.rollout.routes import LOOK_S


def wake_s(state: RolloutState, inputs: RolloutInputs) -> float | None:
    """Seconds from now until time itself makes something happen; None where it does not."""
    if state.phase in ("Promoting", "RollingBack"):
        due_s = max(kept_until_s(state, inputs), inputs.now_s + LOOK_S)
    elif state.phase in HASTY:
        due_s = deadline_s(state, inputs)
    else:
        return None
    return due_s - inputs.now_s if due_s > inputs.now_s else None


def earlier_s(one_s: float | None, other_s: float | None) -> float | None:
    """The earlier of two times. None: never."""
    return min((each for each in (one_s, other_s) if each is not None), default=None)
