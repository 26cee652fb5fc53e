"""Computes the conditions that sum up the others: RolledOut, Reconciling, Stalled and Ready."""

from penstock.core.observed.children import ObservedState
from penstock.core.observed.preflight import preflight_result
from penstock.core.observed.rollout_phases import PHASES
from penstock.core.observed.rollout_state import Rejection
from penstock.core.observed.stored_status import QUOTA_EXCEEDED
from penstock.core.reconcile.condition_types import SCALED_TO_ZERO, WAKING, Condition
from penstock.core.reconcile.plan import Plan

# Reconciling and Stalled are never both True.
STALLED, SEE_STALLED = "Stalled", "the condition Stalled says why"


def rolled_out(plan: Plan) -> Condition:
    """The condition RolledOut: whether the spec's revision receives all traffic."""
    state = plan.rollout
    rejection = _rejection(plan)
    if rejection is not None:
        message = f"revision {rejection.revision} was rejected: {rejection.reason}"
        return Condition("RolledOut", "False", "Rejected", message)
    if state.is_settled and state.stable == plan.revision:
        message = f"revision {state.stable} receives all traffic"
        return Condition("RolledOut", "True", "Stable", message)
    if state.is_settled:  # the spec changed at the end of a rollout; the next rollout starts
        message = f"the spec asks for revision {plan.revision}; revision {state.stable} serves"
        return Condition("RolledOut", "False", "RevisionPending", message)
    message = f"{state.reason}; {plan.waiting_for}" if plan.waiting_for else state.reason
    return Condition("RolledOut", "False", state.phase, message)


def _rejection(plan: Plan) -> Rejection | None:
    """The rejection of the revision that the spec asks for; None if it was not rejected."""
    rejected = plan.rollout.rejection
    return rejected if rejected is not None and rejected.revision == plan.revision else None


def stalled(
    conditions: tuple[Condition, Condition, Condition, Condition],
    observed: ObservedState,
    plan: Plan,
    revision: str,
) -> Condition:
    """The condition Stalled: no progress without a change (kstatus, Flux, Argo CD: a failure).

    conditions: SpecValid, ModelReady, WorkloadReady and RolledOut. Exceeding a deadline
    no longer counts once pods come up. A quota without room may have some before the deadline.
    """
    valid, model, workload, progress = conditions
    preflight = observed.preflight(revision)
    verdict = preflight_result(preflight) if preflight else None
    refusal = observed.refusals.get(revision)
    is_refused = (refusal is not None and refusal[0] != QUOTA_EXCEEDED) or (
        verdict is not None and not verdict.ok
    )
    if valid.status == "False":
        cause = valid
    elif is_refused and revision == plan.revision:
        cause = next(each for each in (model, workload) if each.status == "False")
    elif _rejection(plan) is not None:
        cause = progress
    elif plan.overdue:
        return Condition("Stalled", "True", "ProgressDeadlineExceeded", plan.overdue)
    else:
        return Condition("Stalled", "False", "NotStalled", "no change of the spec is required")
    return Condition("Stalled", "True", cause.reason, cause.message)


def reconciling(
    plan: Plan, progress: Condition, stop: Condition, causes: tuple[Condition, ...]
) -> Condition:
    """The condition Reconciling: True until the spec is rolled out or stalled, with the phase as reason.

    progress: RolledOut. stop: Stalled. causes: ModelReady and WorkloadReady.
    """
    if stop.status == "True":
        return Condition("Reconciling", "False", STALLED, SEE_STALLED)
    if progress.status == "True":
        return Condition("Reconciling", "False", "Settled", progress.message)
    phase = plan.rollout.phase
    if progress.reason != phase:  # the next rollout starts in a moment
        return Condition("Reconciling", "True", progress.reason, progress.message)
    if PHASES[phase].user_action:
        message = f"{progress.message}; {PHASES[phase].user_action}"
        return Condition("Reconciling", "True", "AwaitingPromotion", message)
    waiting = [each.message for each in causes if each.status != "True"]
    if PHASES[phase].starts_pods and waiting:
        return Condition("Reconciling", "True", phase, f"{plan.rollout.reason}; {waiting[0]}")
    return Condition("Reconciling", "True", phase, progress.message)


def ready(
    observed: ObservedState, valid: Condition, causes: tuple[Condition, ...], traffic: Condition
) -> Condition:
    """The condition Ready: whether requests are answered, also during a rollout.

    causes: conditions that explain why nothing answers. If another service has the model name, no request
    is routed here, whatever the engines do. A refused spec is no cause: an earlier one runs.
    """
    is_run_by_earlier = observed.refusal is not None and observed.name_taken_by is None
    if valid.status == "False" and not is_run_by_earlier:
        return Condition("Ready", "False", valid.reason, valid.message)
    if traffic.status == "True" or traffic.reason == SCALED_TO_ZERO:
        return answering(traffic)
    cause = next((each for each in causes if each.status != "True"), traffic)
    return Condition("Ready", "False", cause.reason, cause.message)


def answering(traffic: Condition) -> Condition:
    """The condition Ready of a service that answers requests, or has no engine and needs none.

    traffic: TrafficAvailable.
    """
    if traffic.reason in (SCALED_TO_ZERO, WAKING):
        return Condition("Ready", "True", traffic.reason, traffic.message)
    return Condition("Ready", "True", "Ready", "the service answers requests")
