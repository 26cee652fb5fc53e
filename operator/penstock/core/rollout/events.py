"""Detects rollout events from the observed state, the most urgent first.

    user commands -> spec changes -> failures of new pods -> the judge's verdict -> progress of the phase

An event that the phase table does not list for the current phase is ignored, and detected again later.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.canary.verdict import Abort, Accept, MirrorPassed, Verdict
from penstock.core.observed.children import ObservedState
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.preflight import preflight_result
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.rollout import routes
from penstock.core.rollout.commands import Command
from penstock.core.rollout.deadlines import PHASES_WITH_DEADLINE, progress_deadline_s
from penstock.core.rollout.phases import TRANSITIONS, Event
from penstock.core.rollout.size import pods_for
from penstock.core.rollout.user_requests import EventWithReason, user_requests
from penstock.core.routing.pick import Side
from penstock.core.spec.rollout import RolloutSpec
from penstock.core.spec.service import CONTROL, SERVE

# Container restarts of a new pod that are tolerated: a single crash may have a cause outside the revision.
MAX_RESTARTS = 1


@dataclass(frozen=True, slots=True)
class RolloutInputs:
    """Inputs of one rollout step.

    wanted: the revision of the spec. total: replicas for all of the traffic. verdict: the judge's last on
    the revision that is rolled out. command: the user's last, whether read before or not.
    applied_generations: the traffic generation that each gateway applies; None while unknown.
    """

    spec: RolloutSpec
    observed: ObservedState
    wanted: str
    total: int
    now_s: float
    verdict: Verdict | None = None
    command: Command | None = None
    applied_generations: routes.AppliedGenerations | None = None


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
    if refusal is not None and refusal[0] == "PodTemplateRejected":
        return ": ".join(refusal)
    for pod in observed.serving(revision):
        if pod.is_crash_looping and pod.restarts > MAX_RESTARTS:
            return f"{pod.name} crashed {pod.restarts} times: {_termination_message(pod)}"
    is_waited_for = state.phase in PHASES_WITH_DEADLINE or not _is_traffic_moved(state, inputs)
    if is_waited_for and _is_progress_overdue(state, inputs):
        return _no_progress(state, inputs)
    return None


def overdue(state: RolloutState, inputs: RolloutInputs) -> str:
    """Message about a phase that exceeded its deadline and has no rollback; empty for other phases.

    A first revision and Recreate have no revision to roll back to, so the phase continues.
    """
    is_final = (state.phase, "PodsFailed") not in TRANSITIONS[state.strategy]
    is_late = state.phase in PHASES_WITH_DEADLINE and _is_progress_overdue(state, inputs)
    return _no_progress(state, inputs) if is_final and is_late else ""


def _is_progress_overdue(state: RolloutState, inputs: RolloutInputs) -> bool:
    return inputs.now_s >= progress_deadline_s(state, inputs.spec, inputs.observed)


def _no_progress(state: RolloutState, inputs: RolloutInputs) -> str:
    deadline = f"{inputs.spec.progress_deadline_s:.0f} s"
    return f"no progress within {deadline}: {_waiting_reason(state, inputs)}"


def _waiting_reason(state: RolloutState, inputs: RolloutInputs) -> str:
    """Why the new revision's pods are not ready yet, in words."""
    observed = inputs.observed
    if refusal := observed.refusals.get(state.revision or ""):
        return ": ".join(refusal)
    preflight = observed.preflight(state.revision or "")
    if preflight is not None and preflight.trouble is not None:
        return f"{preflight.name}: {', '.join(preflight.trouble)}"
    pods = sorted(observed.serving(state.revision), key=lambda pod: pod.name)
    controls = observed.serving(state.stable, CONTROL)
    for pod in (*pods, *controls):
        if pod.trouble is not None and not pod.is_ready:
            return f"{pod.name}: {': '.join(pod.trouble)}"
    for coming in observed.deployments_of(state.revision).values():
        if coming.trouble is not None:
            return ": ".join(coming.trouble)
    return f"{observed.ready(state.revision)} pods of revision {state.revision} are ready"


def _termination_message(pod: ObservedPod) -> str:
    return (pod.trouble[1] if pod.trouble else "")[-300:] or "it has no termination message"


def _progress(state: RolloutState, inputs: RolloutInputs) -> Iterator[EventWithReason]:
    """Yield the event that the current phase waits for, if it happened."""
    match state.phase:
        case "Waiting" if inputs.spec.promotion == "Manual":
            pass
        case "Starting" | "Waiting" | "Growing" | "Replacing":
            if _are_ready(state, inputs):
                yield _readiness(state, inputs), f"the pods of revision {state.revision} are ready"
        case "RollingBack" if state.strategy == "Rolling":
            if _has(inputs, state.stable, inputs.total):
                yield "PodsReady", f"the pods of revision {state.stable} are ready again"
        case "Stopping" | "Draining" | "Discarding":
            kept = None if state.phase == "Stopping" else state.stable
            if not _has_others(inputs.observed, kept):
                yield "PodsGone", "the pods without traffic are gone"
        case "Promoting" | "RollingBack":
            if reason := _routes_moved(state, inputs):
                yield "RoutesMoved", reason
        case "Stable" | "Mirroring" | "Judging" | "Paused" | "Rejected":
            pass


def _readiness(state: RolloutState, inputs: RolloutInputs) -> Event:
    """The event for ready pods, by phase and strategy."""
    if state.phase == "Starting":
        if state.strategy == "Canary" and inputs.spec.canary.mirror is not None:
            return "ReadyToMirror"
        if state.strategy == "BlueGreen" and inputs.spec.promotion == "Manual":
            return "ReadyToSwitch"
    return "PodsReady"


def _routes_moved(state: RolloutState, inputs: RolloutInputs) -> str | None:
    """Why pods without traffic may be deleted, in words; None while they must stay."""
    is_rollback_kept = inputs.now_s < rollback_until_s(state, inputs)
    if is_rollback_kept or _is_last_serving(state, inputs) or not _is_traffic_moved(state, inputs):
        return None
    generation = inputs.observed.traffic_generation
    lag = routes.describe_lagging_gateway(inputs.applied_generations, generation)
    if not lag:
        number = len(inputs.applied_generations or ())
        return f"{number} of {number} gateways apply traffic generation {generation}"
    if inputs.now_s >= state.since_s + routes.GATEWAY_TIMEOUT_S:
        return f"{lag}, after {routes.GATEWAY_TIMEOUT_S:.0f} s"
    return None


def lagging_gateway(state: RolloutState, inputs: RolloutInputs) -> str:
    """A sentence on the gateway that the phase waits for; empty if there is none."""
    is_routing = state.phase in ("Promoting", "RollingBack") and state.strategy != "Rolling"
    return (
        routes.describe_lagging_gateway(
            inputs.applied_generations or {}, inputs.observed.traffic_generation
        )
        if is_routing
        else ""
    )


def _is_traffic_moved(state: RolloutState, inputs: RolloutInputs) -> bool:
    """Whether the stored traffic shares already exclude the side that the phase takes traffic from."""
    routed, new = {share.side for share in inputs.observed.traffic}, Side(state.revision or "")
    match state.phase:
        case "Promoting":
            return routed <= {new}
        case "RollingBack":
            return new not in routed
        case _:
            return True


def _is_last_serving(state: RolloutState, inputs: RolloutInputs) -> bool:
    """Whether the new revision is being rolled back but is the only one with ready pods."""
    observed = inputs.observed
    is_back = observed.ready(state.stable) > 0 or not observed.ready(state.revision)
    return state.phase == "RollingBack" and not is_back


def rollback_until_s(state: RolloutState, inputs: RolloutInputs) -> float:
    """Unix time until which pods without traffic are kept for a rollback (BlueGreen)."""
    is_kept = state.phase == "Promoting" and state.strategy == "BlueGreen"
    if is_kept and inputs.wanted == state.revision:
        return state.since_s + inputs.spec.scale_down_delay_s
    return state.since_s


def _are_ready(state: RolloutState, inputs: RolloutInputs) -> bool:
    if state.phase == "Starting" and state.strategy == "Canary":
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


def _has_others(observed: ObservedState, kept: str | None) -> bool:
    """Whether Deployments or engine pods other than the kept revision's exist."""
    sides = {deployment.side for deployment in observed.deployments}
    sides |= {pod.side for pod in observed.pods if pod.role == SERVE}
    return bool(sides - {Side(kept or "")})
