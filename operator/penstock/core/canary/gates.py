"""What needs no statistics, or hardly any: faults that abort at once."""

import math

from penstock.core.canary.counts import Counts
from penstock.core.canary.evidence import Block

# A burst less likely than this is no chance: an hour of blocks stays far below any alpha.
BURST_CHANCE = 1e-7
# Events that never were seen are taken to be missing once in what is known, and in so many requests.
PRIOR_EVENTS, PRIOR_REQUESTS = 1.0, 200.0
# Events that were seen a few times may be more frequent by so many standard deviations.
DOUBT = 3.0


def fault(
    block: Block, control_errors: Counts, canary_empty: Counts, control_empty: Counts
) -> str | None:
    """Why the canary has to go now; control_* and canary_*: of the blocks before this one.

    Errors are counted in one block, as all of them together are a test of their own. Empty answers
    are not, and a canary that says nothing may get two requests in a block: they are counted in all.
    """
    faults, canary, control = block.faults, block.canary, block.control
    if faults.crash_loops:
        return f"{faults.crash_loops} of the canary's containers are in a crash loop"
    if faults.out_of_memory:
        return f"{faults.out_of_memory} of the canary's containers were killed for memory"
    if faults.nan_outputs:
        return f"the canary made {faults.nan_outputs} outputs that are not numbers"
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
    """A Poisson test against the control's share, of all time or of this block: the larger."""
    if canary.events < 2:
        return False
    share = max(_likely_share(known), _likely_share(now))
    return poisson_tail(canary.events, canary.requests * share) < BURST_CHANCE


def _likely_share(control: Counts) -> float:
    """As large as it may well be."""
    if not control.events:
        return PRIOR_EVENTS / (control.requests + PRIOR_REQUESTS)
    return min(1.0, (control.events + DOUBT * math.sqrt(control.events)) / control.requests)


def poisson_tail(events: int, expected: float) -> float:
    """An upper bound of P(X >= events), by a geometric series; 1 where events <= expected."""
    if events <= expected:
        return 1.0
    first = math.exp(events * math.log(expected) - expected - math.lgamma(events + 1))
    return min(1.0, first / (1 - expected / (events + 1)))
