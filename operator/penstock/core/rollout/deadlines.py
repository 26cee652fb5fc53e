"""Deadlines of the phases of a rollout, from the settings of its service."""

from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.observed.children import ObservedState
from penstock.core.observed.rollout_phases import PHASES, PHASES_THAT_USERS_END, SETTLED_PHASES
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.rollout.adapter_events import MAX_SHORT_S
from penstock.core.rollout.routes import GATEWAY_TIMEOUT_S
from penstock.core.runtimes.pod_models import FETCH_DEADLINE_S
from penstock.core.spec.canary import CanarySpec
from penstock.core.spec.rollout import RolloutSpec
from penstock.core.spec.service import ServiceSpec

# Phases that last until a user decides, or until the spec changes.
PHASES_WITHOUT_DEADLINE = (*SETTLED_PHASES, *sorted(PHASES_THAT_USERS_END))

# Time after the grace period in which the kubelet of a healthy node has removed a pod, in seconds.
REMOVAL_S = 30.0


def progress_deadline_s(
    state: RolloutState, spec: RolloutSpec, observed: ObservedState, revision: str | None
) -> float:
    """Unix time by which the revision's next pod must be ready.

    Each pod that becomes ready, or has fetched its model, extends it. A running fetch extends it to the time
    limit of the fetch.
    """
    pods = observed.serving(revision)
    fetches = [pod.fetches for pod in pods if pod.fetches]
    progress = [pod.ready_at for pod in pods if pod.ready_at]
    progress += [each.ended_at for each in fetches if each.ended_at]
    deadline_s = max([state.since_s, *map(parse_timestamp, progress)]) + spec.progress_deadline_s
    running = [parse_timestamp(each.since) for each in fetches if each.running and each.since]
    return max([deadline_s, *(since_s + FETCH_DEADLINE_S for since_s in running)])


def removal_deadline_s(state: RolloutState, termination_grace_s: float) -> float:
    """Unix time by which the pods that the phase removes should be gone."""
    return state.since_s + termination_grace_s + REMOVAL_S


def phase_deadline_s(
    state: RolloutState, spec: ServiceSpec, observed: ObservedState
) -> float | None:
    """Unix time by which the phase should end, or the next of the pods that it starts be ready.

    None for PHASES_WITHOUT_DEADLINE. A canary may take longer: time without requests does not count towards
    its maxDuration.
    """
    rollout = spec.rollout
    match PHASES[state.phase].awaits:
        case "Spec" | "User":
            return None
        case "ReadyPods":
            return progress_deadline_s(state, rollout, observed, state.revision)
        case "RemovedPods" | "NoPods":
            return removal_deadline_s(state, spec.termination_grace_s)
        case "TrafficToNew" | "TrafficToStable" if (
            state.strategy == "Rolling"
        ):  # stable pods start again
            return progress_deadline_s(state, rollout, observed, state.stable)
        case "TrafficToNew" if state.strategy == "BlueGreen":  # old pods are kept for a rollback
            return state.since_s + rollout.scale_down_delay_s + GATEWAY_TIMEOUT_S
        case "TrafficToNew" | "TrafficToStable":
            return state.since_s + GATEWAY_TIMEOUT_S
        case "Evidence" if PHASES[state.phase].is_mirrored:
            return state.since_s + (
                rollout.canary.mirror.duration_s if rollout.canary.mirror else 0.0
            )
        case "Evidence":
            evaluation_s = rollout.evaluation.timeout_s if rollout.evaluation else 0.0
            return state.since_s + rollout.canary.max_duration_s + evaluation_s


def adapter_deadline_s(state: RolloutState, canary: CanarySpec) -> float | None:
    """Unix time by which a phase of an adapter's version should end; None for PHASES_WITHOUT_DEADLINE.

    canary: settings of the service. As for a service, a canary may take longer.
    """
    match PHASES[state.phase].awaits:
        case "Spec" | "User":
            return None
        case "Evidence":
            return state.since_s + canary.max_duration_s
        case "TrafficToNew" | "TrafficToStable":
            return state.since_s + GATEWAY_TIMEOUT_S
        # Copies are loaded, or unloaded when their requests end.
        case "ReadyPods" | "RemovedPods" | "NoPods":
            return state.since_s + MAX_SHORT_S
