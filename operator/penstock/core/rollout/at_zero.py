"""Rollouts of a service at zero replicas that start no engine (spec.rollout.atZero: Accept).

    preflight runs, no request comes      -> no engine; a failed preflight rejects the revision as always
    preflight passes, no request came     -> the revision is stable; the next request starts its engine
    a request comes before it has passed  -> an engine of the stable revision starts at once, and the
                                             rollout goes on as Rolling
    a request comes after it has passed   -> an engine of the new revision starts

Such a rollout has the strategy Rolling, whatever the spec's: the others compare or switch between engines.
"""

from penstock.core.observed.rollout_state import RolloutState
from penstock.core.spec.rollout import RolloutSpec


def is_accepted_at_zero(spec: RolloutSpec, replicas: int) -> bool:
    """Whether a revision of a service with so many replicas is accepted without an engine."""
    return spec.at_zero == "Accept" and not replicas


def may_stay_at_zero(spec: RolloutSpec, state: RolloutState | None) -> bool:
    """Whether a service in this state needs no replica for its rollout, or has no rollout."""
    if state is None:
        return False
    is_rolling = state.strategy == "Rolling"
    return state.is_settled or (is_rolling and is_accepted_at_zero(spec, state.replicas))
