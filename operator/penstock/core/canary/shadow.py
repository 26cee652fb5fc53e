"""A revision that is shown copies of requests before any caller meets it: only its faults are judged.

Its load is not what stable's is, so nothing is said of latencies: those are for the canary after it.
"""

from dataclasses import dataclass

from penstock.core.canary import gates
from penstock.core.canary.counts import NONE, Counts
from penstock.core.canary.evidence import Block
from penstock.core.canary.verdict import Abort, Continue, Shown, Verdict
from penstock.core.spec.canary import ShadowSpec


@dataclass(frozen=True, slots=True)
class ShadowState:
    """shown_s: time with copies that ended; only that counts. copies: of the new revision, with those
    that failed. control_*: of what stands beside it."""

    shown_s: float = 0.0
    copies: Counts = NONE
    control_errors: Counts = NONE
    canary_empty: Counts = NONE
    control_empty: Counts = NONE


NOT_SHOWN = ShadowState()


def fault(state: ShadowState, block: Block) -> str | None:
    """Why the revision has to go at once; of a block that has not ended, too."""
    return gates.fault(block, state.control_errors, state.canary_empty, state.control_empty)


def look(spec: ShadowSpec, state: ShadowState, block: Block) -> tuple[Verdict, ShadowState]:
    """After each block, in order of time. Does not mutate `state`."""
    if reason := fault(state, block):
        return Abort(f"{reason}, of copies that no caller saw", "Gate"), state
    canary, control = block.canary, block.control
    after = ShadowState(
        state.shown_s + (block.length_s if canary.requests else 0.0),
        state.copies.add(Counts(canary.requests, canary.errors)),
        state.control_errors.add(Counts(control.requests, control.errors)),
        state.canary_empty.add(Counts(canary.requests, canary.empty_outputs)),
        state.control_empty.add(Counts(control.requests, control.empty_outputs)),
    )
    said = f"{after.copies.requests:,} copies in {after.shown_s:.0f} s showed no fault"
    if after.shown_s >= spec.duration_s:
        return Shown(said), after
    return Continue(f"{said} yet; {spec.duration_s:.0f} s are asked for", 0.0), after
