"""Computes the copies and the traffic of each phase of the rollout of an adapter's version.

An adapter has the phases of Canary and of BlueGreen with automatic promotion.
"""

from penstock.core.observed.rollout_state import RolloutState
from penstock.core.rollout.size import pods_for
from penstock.core.spec.canary import CanarySpec


def wanted_copies(state: RolloutState, canary: CanarySpec) -> int:
    """Copies that the version that is rolled out needs in this phase; 0 if there is none."""
    match state.phase:
        case "Starting" if state.strategy == "Canary":
            return pods_for(canary.min_weight, state.replicas)
        case "Starting":
            return 1
        case "Judging" | "Paused":
            return pods_for(state.weight_percent / 100, state.replicas)
        case "Growing" | "Promoting":
            return state.replicas
        case "Stable" | "Draining" | "RollingBack" | "Discarding" | "Rejected":
            return 0
        case "Stopping" | "Mirroring" | "Waiting" | "Replacing":  # of services only
            return 0


def traffic_shares(state: RolloutState) -> dict[str, int]:
    """Percent of the requests by revision, the stable one first."""
    stable, candidate = state.stable or "", state.revision or ""
    match state.phase:
        case "Judging" | "Paused" | "Growing":
            weight = state.weight_percent
            return {stable: 100 - weight, candidate: weight}
        case "Promoting":
            return {candidate: 100}
        case "Stable" | "Starting" | "Draining" | "RollingBack" | "Discarding" | "Rejected":
            return {stable: 100}
        case "Stopping" | "Mirroring" | "Waiting" | "Replacing":  # of services only
            return {stable: 100}
