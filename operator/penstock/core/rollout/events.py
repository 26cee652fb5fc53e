"""Detects rollout events from the observed state, the most urgent first.

    user commands -> spec changes -> failures of new pods -> the judge's verdict -> progress of the phase

An event that the phase table does not list for the current phase is ignored, and detected again later.
"""

from collections.abc import Iterator

from penstock.core.canary.verdict import Abort, Accept, MirrorPassed
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.preflight import preflight_result
from penstock.core.observed.retry_advice import restart_command, source_advice
from penstock.core.observed.rollout_phases import PHASES
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.observed.stored_status import POD_TEMPLATE_REJECTED
from penstock.core.rollout.deadlines import (
    progress_deadline_s,
    removal_deadline_s,
)
from penstock.core.rollout.inputs import RolloutInputs
from penstock.core.rollout.size import pods_for
from penstock.core.rollout.traffic_moves import is_traffic_moved, routes_moved
from penstock.core.rollout.user_requests import EventWithReason, user_requests
from penstock.core.rollout.waiting import describe_remaining, missing_pods, no_progress
from penstock.core.spec.service import CONTROL

# Container restarts of a new pod that are tolerated: a single crash may have a cause outside the revision.
MAX_RESTARTS = 1


def detect_events(state: RolloutState, inputs: RolloutInputs) -> Iterator[EventWithReason]:
    yield from user_requests(state, inputs.wanted, inputs.command)
    if reason := _failure(state, inputs):
        yield "PodsFailed", reason
    evaluation = inputs.observed.evaluation(state.revision)
    if evaluation is not None and evaluation.state == "Failed":
        yield "Aborted", f"the evaluation failed: {inputs.observed.report(evaluation)}"
    is_tried = inputs.spec.evaluation is None or (evaluation and evaluation.state == "Passed")
    if isinstance(inputs.verdict, Accept) and is_tried:
        yield "Accepted", inputs.verdict.reason
    if isinstance(inputs.verdict, Abort):
        yield "Aborted", inputs.verdict.reason
    if isinstance(inputs.verdict, MirrorPassed):
        yield "MirrorPassed", inputs.verdict.reason
    yield from _progress(state, inputs)


def _failure(state: RolloutState, inputs: RolloutInputs) -> str | None:
    """Why the new revision's pods failed; None if they did not."""
    observed, revision = inputs.observed, state.revision
    if revision is None:
        return None
    if preflight := observed.preflight(revision):
        verdict = preflight_result(preflight)
        if verdict is not None and not verdict.ok:
            return f"{verdict.reason}: {verdict.message}"
    refusal = observed.refusals.get(revision)
    if refusal is not None and refusal[0] == POD_TEMPLATE_REJECTED:
        return ": ".join(refusal)
    for pod in observed.serving(revision):
        if pod.is_crash_looping and pod.restarts > MAX_RESTARTS:
            is_fetch = pod.fetches is not None and pod.fetches.is_final
            what = "failed to fetch its model" if is_fetch else "crashed"
            advice = f"; {source_advice(restart_command(pod.service))}" if is_fetch else ""
            return f"{pod.name} {what} {pod.restarts} times: {_termination_message(pod)}{advice}"
    is_waited_for = PHASES[state.phase].starts_pods or not is_traffic_moved(state, inputs)
    deadline_s = progress_deadline_s(state, inputs.spec, observed, revision)
    if is_waited_for and inputs.now_s >= deadline_s:
        return no_progress(inputs.spec, missing_pods(state, observed))
    return None


def _termination_message(pod: ObservedPod) -> str:
    return (pod.trouble[1] if pod.trouble else "")[-300:] or "it has no termination message"


def _progress(state: RolloutState, inputs: RolloutInputs) -> Iterator[EventWithReason]:
    """Yield the event that the current phase waits for, if it happened."""
    match PHASES[state.phase].awaits:
        case "ReadyPods":
            yield from _readiness(state, inputs)
        case "User":
            # The spec may have changed to automatic promotion since.
            if state.strategy == "BlueGreen" and inputs.spec.promotion == "Automatic":
                yield from _readiness(state, inputs)
        case "RemovedPods" | "NoPods" as awaited:
            yield from _removal(state, inputs, is_limited=awaited == "RemovedPods")
        case "TrafficToNew" | "TrafficToStable" if state.strategy == "Rolling":
            if _has(inputs, state.stable, inputs.total):
                yield "PodsReady", f"the pods of revision {state.stable} are ready again"
        case "TrafficToNew" | "TrafficToStable":
            if reason := routes_moved(state, inputs):
                yield "RoutesMoved", reason
        case "Spec" | "Evidence":
            pass


def _readiness(state: RolloutState, inputs: RolloutInputs) -> Iterator[EventWithReason]:
    """Yield candidates, most specific first. The first that the phase's transitions list applies."""
    if not _are_ready(state, inputs):
        return
    reason = f"the pods of revision {state.revision} are ready"
    if not inputs.total:
        reason = f"the service is at zero, and the preflight of revision {state.revision} passed"
    if inputs.spec.canary.mirror is not None:
        yield "ReadyToMirror", reason
    if inputs.spec.promotion == "Manual":
        yield "ReadyToSwitch", reason
    yield "PodsReady", reason


def _removal(
    state: RolloutState, inputs: RolloutInputs, *, is_limited: bool
) -> Iterator[EventWithReason]:
    """Yield PodsGone if the pods are gone, or if they are late and their time is limited."""
    remaining = describe_remaining(state, inputs)
    if not remaining:
        yield "PodsGone", "the pods without traffic are gone"
    elif is_limited and inputs.now_s >= removal_deadline_s(state, inputs.termination_grace_s):
        yield "PodsGone", f"the grace period of pods without traffic is over, but {remaining}"


def _are_ready(state: RolloutState, inputs: RolloutInputs) -> bool:
    if state.strategy == "Canary" and PHASES[state.phase].is_first:
        wanted = pods_for(inputs.spec.canary.min_weight, inputs.total)
        control = inputs.observed.deployment(state.stable, CONTROL)
        is_control_ready = control is None or inputs.observed.ready(state.stable, CONTROL) >= wanted
        return _has(inputs, state.revision, wanted) and is_control_ready
    if state.strategy == "Recreate":
        return _has(inputs, state.revision, min(1, inputs.total))
    return _has(inputs, state.revision, inputs.total)


def _has(inputs: RolloutInputs, revision: str | None, pods: int) -> bool:
    observed = inputs.observed
    is_there = observed.deployment(revision) is not None
    return is_there and observed.ready(revision, "") >= pods
