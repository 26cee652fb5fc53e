"""Judges a revision by its answers to copies of requests: only faults count.

The load of copies differs from stable's load, so latencies are not compared; the canary that follows does.
"""

from dataclasses import dataclass

from penstock.core.canary import gates
from penstock.core.canary.counts import NONE, Counts
from penstock.core.canary.evidence import Block
from penstock.core.canary.verdict import Abort, Continue, MirrorPassed, Verdict
from penstock.core.spec.canary import MirrorSpec


@dataclass(frozen=True, slots=True)
class MirrorState:
    """Evidence from copies of requests. Field names are stored.

    shown_s: seconds of blocks in which copies finished. copies: of the new revision, with failed ones.
    control_*: of the pods that it is compared with.
    """

    shown_s: float = 0.0
    copies: Counts = NONE
    control_errors: Counts = NONE
    canary_empty: Counts = NONE
    control_empty: Counts = NONE


NO_COPIES = MirrorState()


def fault(state: MirrorState, block: Block) -> str | None:
    """Why the revision must be aborted at once, in words; the block may be unfinished."""
    return gates.fault(block, state.control_errors, state.canary_empty, state.control_empty)


def judge_mirror(spec: MirrorSpec, state: MirrorState, block: Block) -> tuple[Verdict, MirrorState]:
    """The verdict after a block, and the next state. Blocks must be in order of time."""
    if reason := fault(state, block):
        return Abort(f"{reason} (copies of requests, whose answers no client saw)", "Gate"), state
    canary, control = block.canary, block.control
    after = MirrorState(
        state.shown_s + (block.length_s if canary.requests else 0.0),
        state.copies.add(Counts(canary.requests, canary.errors)),
        state.control_errors.add(Counts(control.requests, control.errors)),
        state.canary_empty.add(Counts(canary.requests, canary.empty_outputs)),
        state.control_empty.add(Counts(control.requests, control.empty_outputs)),
    )
    reason = f"{after.copies.requests:,} copies in {after.shown_s:.0f} s showed no fault"
    if after.shown_s >= spec.duration_s:
        return MirrorPassed(reason), after
    return Continue(f"{reason} yet; {spec.duration_s:.0f} s are required", 0.0), after
