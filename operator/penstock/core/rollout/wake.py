"""When to look again though nothing changed."""

from penstock.core.rollout.events import HASTY, Seen, deadline_s, routes_moved_s
from penstock.core.rollout.state import RolloutState


def wake_s(state: RolloutState, seen: Seen) -> float | None:
    """Seconds from now until time itself makes something happen; None where it does not."""
    if state.phase in ("Promoting", "RollingBack"):
        due_s = routes_moved_s(state, seen)
    elif state.phase in HASTY:
        due_s = deadline_s(state, seen)
    else:
        return None
    return due_s - seen.now_s if due_s > seen.now_s else None
