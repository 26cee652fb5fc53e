"""Invariants of the phases of a rollout, stated without the tables of phases and transitions."""

import math

from tests.core.rollout.scenarios.plan_step import GATEWAYS_S, GIVEN_UP, UNDECIDED

from penstock.core.canary.verdict import Abort, Accept, Continue, MirrorPassed
from penstock.core.routing.pick import Side


def check_weight(step):
    """A canary's share grows only by a verdict, while it is judged; at first it is the smallest."""
    before, after, verdict = step.before, step.result, step.given.verdict
    if after.revision != before.revision or after.weight_percent <= before.weight_percent:
        return
    assert after.phase == "Judging", f"weight {after.weight_percent} while {after.phase}"
    earned = verdict.weight if isinstance(verdict, Continue) else 0
    if before.phase in ("Starting", "Mirroring"):
        earned = max(earned, step.world.spec.rollout.canary.min_weight)
    assert after.weight_percent <= max(1, round(100 * earned)), "a weight that was not earned"


def check_verdict(step):
    """A verdict ends the judgement at once, and only a user promotes without one."""
    phase, verdict = step.result.phase, step.given.verdict
    rollout = step.world.spec.rollout
    if step.phases == ("Starting", "Judging"):
        assert rollout.canary.mirror is None, "traffic before copies"
    if step.is_redirected:
        return
    match step.before.phase, verdict:
        case "Judging" | "Paused" | "Growing", Abort():
            assert phase == "RollingBack", "the judge's rejection is ignored"
        case "Mirroring", Abort():
            assert phase == "Discarding", "the rejection of a mirrored canary is ignored"
        case "Judging", Accept():
            is_open = rollout.evaluation is not None and phase == "Judging"
            assert is_open or phase in ("Growing", "RollingBack"), "the judge's approval is ignored"
        case "Mirroring", MirrorPassed():
            assert phase in ("Judging", "Discarding"), "enough copies are ignored"
        case "Judging" | "Paused" | "Starting" | "Mirroring", _:
            assert phase != "Growing", "promotion without approval"
            assert step.phases != ("Mirroring", "Judging"), "traffic before enough copies"


def check_order(step):
    """Orders of a user take effect at once, and a pause lasts until the user ends it."""
    before, phase = step.before, step.result.phase
    if step.order == "abort" and before.phase in UNDECIDED and before.strategy != "Recreate":
        assert phase in GIVEN_UP, f"an abort is ignored while {before.phase}"
    if step.order == "pause" and before.phase == "Judging":
        assert phase == "Paused"
    if before.phase == "Paused" and phase not in ("Paused", *GIVEN_UP):
        assert step.order in ("resume", "promote"), "a pause ends by itself"
    if step.phases == ("Waiting", "Promoting"):
        assert step.order == "promote" or step.world.spec.rollout.promotion == "Automatic"
    if step.phases == ("Starting", "Promoting"):
        assert step.world.spec.rollout.promotion == "Automatic", "a user is not waited for"


def check_readiness(step):
    """A revision gets traffic, or counts as stable, when it has the ready pods for that."""
    before, after, total = step.before, step.result, step.made.total
    ready = step.ready(before.revision, "")
    if before.phase == "Starting" and after.phase in ("Judging", "Mirroring"):
        least = max(1, math.ceil(step.world.spec.rollout.canary.min_weight * total - 1e-9))
        assert ready >= least, "a canary without its pods"
        if any(each.side == Side(before.stable, "control") for each in step.world.deployments):
            assert step.ready(before.stable, "control") >= least, "a canary without its control"
    if after.phase == "Promoting" and before.phase != "Promoting":
        assert before.strategy == "BlueGreen" or before.phase == "Growing", "a phase is skipped"
        is_ordered = before.phase == "Waiting" and step.order == "promote"
        assert ready >= total or is_ordered, "promoted before its pods are ready"
    if after.stable is not None and after.stable != before.stable:
        assert after.stable == before.revision
        if step.phases != ("Promoting", "Draining"):
            assert before.phase == ("Replacing" if before.strategy == "Rolling" else "Starting")
            least = total if before.strategy == "Rolling" else min(1, total)
            assert ready >= least, "stable before its pods are ready"


def check_failure(step):
    """A revision that fails is given up at once; only Recreate has nothing to go back to."""
    before, phase = step.before, step.result.phase
    is_watched = before.phase in UNDECIDED and before.strategy != "Recreate"
    if is_watched and not step.is_redirected and step.is_failing(before.revision):
        assert phase in GIVEN_UP, f"{before.phase} goes on with a revision that fails"


def check_reason(step):
    """A rollout is given up only for a reason, and not before its time is over."""
    before, phase = step.before, step.result.phase
    if before.phase not in UNDECIDED or phase not in GIVEN_UP or step.is_redirected:
        return
    is_wrong = isinstance(step.given.verdict, Abort) or step.is_failing(before.revision)
    is_evaluated = any(job.state == "Failed" for job in step.world.jobs.values())
    is_late = step.world.now_s >= step.progress_limit_s(before.revision)
    assert is_wrong or is_evaluated or is_late, f"{before.phase} is given up without a reason"


def check_rejection(step):
    """A rejection is recorded, kept, and not tried again unless a user resumes."""
    before, after = step.before, step.result
    if before.phase in UNDECIDED and after.phase in GIVEN_UP:
        is_wanted = step.made.revision == before.revision
        rejected = after.rejected.revision if after.rejected else None
        assert rejected == before.revision or not is_wanted, "a rejection is not recorded"
    if before.rejected is None:
        return
    if before.phase in GIVEN_UP and after.phase in GIVEN_UP:
        assert after.rejected == before.rejected, "a rejection is lost"
    if before.phase == "Rejected" and before.stable != before.rejected.revision:
        is_tried = after.revision == before.rejected.revision
        assert (
            is_tried == (step.order == "resume") or step.made.revision != before.rejected.revision
        )


def check_limits(step):
    """A phase whose time is over has ended, or says that it is overdue."""
    before, world, limit_s = step.before, step.world, math.inf
    routed = {share.side.revision for share in world.traffic}
    match before.phase:
        case "Starting" | "Growing" | "Replacing":
            limit_s = step.progress_limit_s(before.revision)
        case "Stopping" | "Draining" | "Discarding":
            limit_s = step.removal_limit_s()
        case "Promoting" if routed <= {before.revision}:
            is_kept = before.strategy == "BlueGreen"
            kept_s = world.spec.rollout.scale_down_delay_s if is_kept else 0.0
            limit_s = before.since_s + kept_s + GATEWAYS_S
        case "Promoting":
            limit_s = step.progress_limit_s(before.revision)
        case "RollingBack" if before.strategy == "Rolling" or before.revision not in routed:
            limit_s = step.progress_limit_s(before.stable)
    if world.now_s >= limit_s and not step.is_left:
        may_stay = before.phase in ("Stopping", "RollingBack") or before.strategy == "Recreate"
        assert may_stay, f"{before.phase} does not end"
        assert step.made.overdue, f"{before.phase} exceeds its limit without a word"


PHASE_INVARIANTS = (
    check_weight, check_verdict, check_order, check_readiness, check_failure, check_reason,
    check_rejection, check_limits,
)  # fmt: skip
