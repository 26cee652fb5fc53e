"""Says what a phase of a rollout waits for, and whether it has waited too long.

Every phase ends: by an event of its own, by one that a deadline causes, or by a user, whom a condition tells
what is missing. docs/reference/rollout-phases.md has the table.
"""

from penstock.core.canary.verdict import describe_progress
from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.children import ObservedState
from penstock.core.observed.rollout_phases import PHASES
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.rollout.deadlines import progress_deadline_s, removal_deadline_s
from penstock.core.rollout.inputs import RolloutInputs
from penstock.core.rollout.phases import TRANSITIONS
from penstock.core.rollout.traffic_moves import is_last_serving, lagging_gateway, rollback_until_s
from penstock.core.routing.pick import Side
from penstock.core.spec.rollout import RolloutSpec
from penstock.core.spec.service import CONTROL, SERVE


def waiting_for(state: RolloutState, inputs: RolloutInputs) -> str:
    """Sentence on what the phase waits for; empty if it waits for nothing, or if its reason says all."""
    match PHASES[state.phase].awaits:
        case "Spec" | "User":
            return ""
        case "ReadyPods":
            return _obstacle(state, inputs.observed)
        case "Evidence":
            return _refusal(state, inputs.observed) or describe_progress(inputs.verdict)
        case "RemovedPods" | "NoPods":
            return describe_remaining(state, inputs)
        case "TrafficToNew" | "TrafficToStable" if state.strategy == "Rolling":
            ready = inputs.observed.ready(state.stable)
            return f"{ready} of {inputs.total} pods of revision {state.stable} are ready"
        case "TrafficToNew" | "TrafficToStable":
            return _awaited_traffic(state, inputs)


def overdue(state: RolloutState, inputs: RolloutInputs) -> str:
    """Message about a phase that exceeded its deadline and that no event ends then; else empty.

    The phase continues: what it waits for may still come.
    """
    now_s, spec, observed = inputs.now_s, inputs.spec, inputs.observed
    match PHASES[state.phase].awaits:
        case "ReadyPods":
            # A first revision and Recreate have no revision to roll back to.
            is_kept = (state.phase, "PodsFailed") not in TRANSITIONS[state.strategy]
            is_late = now_s >= progress_deadline_s(state, spec, observed, state.revision)
            return no_progress(spec, missing_pods(state, observed)) if is_kept and is_late else ""
        case "NoPods":
            is_late = now_s >= removal_deadline_s(state, inputs.termination_grace_s)
            remaining = describe_remaining(state, inputs)
            return f"old pods have not ended in time: {remaining}" if is_late else ""
        case "TrafficToNew" | "TrafficToStable":
            is_kept = state.strategy == "Rolling" or is_last_serving(state, inputs)
            is_late = now_s >= progress_deadline_s(state, spec, observed, state.stable)
            return no_progress(spec, waiting_for(state, inputs)) if is_kept and is_late else ""
        case "Evidence":
            is_late = now_s >= state.since_s + spec.progress_deadline_s
            return _refusal(state, observed) if is_late else ""
        case "Spec" | "User" | "RemovedPods":  # then it goes on without the pods that are left
            return ""


def no_progress(spec: RolloutSpec, obstacle: str) -> str:
    """Message about pods that did not become ready before the deadline."""
    return f"no progress within {spec.progress_deadline_s:.0f} s: {obstacle}"


def missing_pods(state: RolloutState, observed: ObservedState) -> str:
    """Sentence on what keeps new pods from becoming ready, or on how many are ready."""
    ready = f"{observed.ready(state.revision)} pods of revision {state.revision} are ready"
    return _obstacle(state, observed) or ready


def describe_remaining(state: RolloutState, inputs: RolloutInputs) -> str:
    """The Deployments and pods whose end the phase waits for, in words; empty if there are none.

    Terminating pods have no traffic: they do not keep another revision from being rolled out, unless it is
    to start in their place (Recreate).
    """
    observed, is_recreate = inputs.observed, PHASES[state.phase].awaits == "NoPods"
    kept = Side(state.stable or "")
    is_next_wanted = inputs.wanted != (state.revision or state.stable)
    remaining = [
        each.name
        for each in observed.deployments
        if each.side != kept or (is_recreate and each.replicas)
    ] + [
        pod.name
        for pod in observed.pods
        if pod.role == SERVE
        and not pod.is_over
        and (is_recreate or (pod.side != kept and not (pod.is_ending and is_next_wanted)))
    ]
    if not remaining:
        return ""
    first, *others = sorted(remaining)
    return f"{first} and {len(others)} more still exist" if others else f"{first} still exists"


def _obstacle(state: RolloutState, observed: ObservedState) -> str:
    """Sentence on what keeps new pods from becoming ready; empty if nothing is known to."""
    if refusal := _refusal(state, observed):
        return refusal
    preflight = observed.preflight(state.revision or "")
    if preflight is not None and preflight.trouble is not None:
        return f"{preflight.name}: {', '.join(preflight.trouble)}"
    pods = sorted(observed.serving(state.revision), key=lambda pod: pod.name)
    controls = observed.serving(state.stable, CONTROL)
    for pod in (*pods, *controls):
        if pod.trouble is not None and not pod.is_ready:
            return f"{pod.name}: {': '.join(pod.trouble)}"
    for side in ((state.revision, ""), (state.stable, CONTROL)):
        for deployment in observed.deployments_of(*side).values():
            if deployment.trouble is not None:
                return ": ".join(deployment.trouble)
    return ""


def _refusal(state: RolloutState, observed: ObservedState) -> str:
    """Why the API server refused an object of the new revision, now or when it was last written."""
    refusal = observed.refusals.get(state.revision or "") or observed.stored_refusal
    return ": ".join(refusal) if refusal else ""


def _awaited_traffic(state: RolloutState, inputs: RolloutInputs) -> str:
    """Sentence on why the traffic stays, or why pods without traffic do; empty if neither does."""
    if is_last_serving(state, inputs):
        return f"no pod of revision {state.stable} is ready, so {state.revision} keeps its traffic"
    until_s = rollback_until_s(state, inputs)
    if inputs.now_s < until_s:
        kept = f"pods of revision {state.stable} are kept for a rollback until {timestamp(until_s)}"
        return lagging_gateway(state, inputs) or kept
    return lagging_gateway(state, inputs)
