"""Fault gates: faults of the canary's pods and bursts of errors or empty answers abort at once."""

import math

from penstock.core.canary.counts import Counts
from penstock.core.canary.evidence import Block

# Significance level of a burst in one block; over an hour of blocks it stays far below any alpha.
BURST_CHANCE = 1e-7
# Prior of an event that the control never showed: one event in its requests and this many more.
PRIOR_EVENTS, PRIOR_REQUESTS = 1.0, 200.0
# The control's share of events is raised by this many standard deviations.
DEVIATIONS = 3.0


def fault(
    block: Block, control_errors: Counts, canary_empty: Counts, control_empty: Counts
) -> str | None:
    """Why the canary must be aborted now, in words; None if it need not be.

    control_*, canary_*: counts of all earlier blocks. Errors are tested within this block, because errors
    over all blocks have a test of their own. Empty answers have none, and a block may have only two
    requests, so they are tested over all blocks.
    """
    faults, canary, control = block.faults, block.canary, block.control
    if faults.crash_loops:
        return f"{faults.crash_loops} of the canary's containers are in a crash loop"
    if faults.out_of_memory:
        return f"{faults.out_of_memory} of the canary's containers were OOMKilled"
    if faults.nan_outputs:
        return f"the canary produced {faults.nan_outputs} NaN outputs"
    errors = Counts(canary.requests, canary.errors)
    now = Counts(control.requests, control.errors)
    if _is_burst(errors, control_errors.add(now), now):
        return f"{errors.events} of {errors.requests} requests to the canary failed in one block"
    empty = canary_empty.add(Counts(canary.requests, canary.empty_outputs))
    now = Counts(control.requests, control.empty_outputs)
    known = control_empty.add(now)
    if _is_burst(empty, known, now):
        return (
            f"{empty.events} of {empty.requests} answers of the canary are empty, and "
            f"{known.events} of {known.requests} of its control"
        )
    return None


def _is_burst(canary: Counts, known: Counts, now: Counts) -> bool:
    """Poisson test against the control's share, of all blocks or of this one, whichever is larger."""
    if canary.events < 2:
        return False
    share = max(_upper_share(known), _upper_share(now))
    return poisson_tail(canary.events, canary.requests * share) < BURST_CHANCE


def _upper_share(control: Counts) -> float:
    """Upper confidence limit of the control's share of events."""
    if not control.events:
        return PRIOR_EVENTS / (control.requests + PRIOR_REQUESTS)
    return min(1.0, (control.events + DEVIATIONS * math.sqrt(control.events)) / control.requests)


def poisson_tail(events: int, expected: float) -> float:
    """Upper bound of P(X >= events) for Poisson X, by a geometric series; 1 if events <= expected."""
    if events <= expected:
        return 1.0
    first = math.exp(events * math.log(expected) - expected - math.lgamma(events + 1))
    return min(1.0, first / (1 - expected / (events + 1)))
