"""Tells when traffic has left a revision, so that its pods may be deleted."""

from penstock.core.observed.rollout_phases import PHASES
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.rollout import routes
from penstock.core.rollout.inputs import RolloutInputs
from penstock.core.routing.pick import Side


def routes_moved(state: RolloutState, inputs: RolloutInputs) -> str | None:
    """Why pods without traffic may be deleted, in words; None while they must stay."""
    is_rollback_kept = inputs.now_s < rollback_until_s(state, inputs)
    if is_rollback_kept or is_last_serving(state, inputs) or not is_traffic_moved(state, inputs):
        return None
    generation, waited_s = inputs.observed.traffic_generation, inputs.now_s - state.since_s
    return routes.explain_moved_traffic(inputs.applied_generations, generation, waited_s) or None


def lagging_gateway(state: RolloutState, inputs: RolloutInputs) -> str:
    """A sentence on the gateway that the phase waits for; empty if there is none."""
    awaited = PHASES[state.phase].awaits
    is_routing = awaited in ("TrafficToNew", "TrafficToStable") and state.strategy != "Rolling"
    return (
        routes.describe_lagging_gateway(
            inputs.applied_generations or {}, inputs.observed.traffic_generation
        )
        if is_routing
        else ""
    )


def is_traffic_moved(state: RolloutState, inputs: RolloutInputs) -> bool:
    """Whether the stored traffic shares already exclude the side that the phase takes traffic from."""
    routed, new = {share.side for share in inputs.observed.traffic}, Side(state.revision or "")
    match PHASES[state.phase].awaits:
        case "TrafficToNew":
            return routed <= {new}
        case "TrafficToStable":
            return new not in routed
        case "Spec" | "ReadyPods" | "RemovedPods" | "NoPods" | "Evidence" | "User":
            return True


def is_last_serving(state: RolloutState, inputs: RolloutInputs) -> bool:
    """Whether the new revision is being rolled back but is the only one with ready pods."""
    observed = inputs.observed
    is_back = observed.ready(state.stable) > 0 or not observed.ready(state.revision)
    return PHASES[state.phase].awaits == "TrafficToStable" and not is_back


def rollback_until_s(state: RolloutState, inputs: RolloutInputs) -> float:
    """Unix time until which pods without traffic are kept for a rollback (BlueGreen)."""
    is_kept = PHASES[state.phase].awaits == "TrafficToNew" and state.strategy == "BlueGreen"
    if is_kept and inputs.wanted == state.revision:
        return state.since_s + inputs.spec.scale_down_delay_s
    return state.since_s
