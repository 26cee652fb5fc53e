"""What needs no statistics, or hardly any: faults that abort at once."""

import math

from penstock.core.canary.counts import Counts
from penstock.core.canary.evidence import Block

# A burst less likely than this is no chance: an hour of blocks stays far below any alpha.
BURST_CHANCE = 1e-7
# One event that may be missing in what is known of the control, and requests before it counts.
PRIOR_EVENTS, PRIOR_REQUESTS = 1.0, 200.0


def fault(block: Block, control_errors: Counts, control_empty: Counts) -> str | None:
    """Why the canary has to go now; control_*: of the blocks before this one."""
    faults, canary, control = block.faults, block.canary, block.control
    if faults.crash_loops:
        return f"{faults.crash_loops} of the canary's containers are in a crash loop"
    if faults.out_of_memory:
        return f"{faults.out_of_memory} of the canary's containers were killed for memory"
    if faults.nan_outputs:
        return f"the canary made {faults.nan_outputs} outputs that are not numbers"
    errors = control_errors.add(Counts(control.requests, control.errors))
    if _is_burst(canary.requests, canary.errors, control.requests, control.errors, errors):
        return f"{canary.errors} of {canary.requests} requests to the canary failed in one block"
    empty = control_empty.add(Counts(control.requests, control.empty_outputs))
    if _is_burst(
        canary.requests, canary.empty_outputs, control.requests, control.empty_outputs, empty
    ):
        return (
            f"{canary.empty_outputs} of {canary.requests} answers of the canary were empty in one "
            "block"
        )
    return None


def _is_burst(
    requests: int, events: int, control_requests: int, control_events: int, known: Counts
) -> bool:
    """A Poisson test against the control's share, of all time or of this block: the larger."""
    if events < 2:
        return False
    share = (known.events + PRIOR_EVENTS) / (known.requests + PRIOR_REQUESTS)
    if control_events:
        share = max(share, control_events / control_requests)
    return poisson_tail(events, requests * share) < BURST_CHANCE


def poisson_tail(events: int, expected: float) -> float:
    """An upper bound of P(X >= events), by a geometric series; 1 where events <= expected."""
    if events <= expected:
        return 1.0
    first = math.exp(events * math.log(expected) - expected - math.lgamma(events + 1))
    return min(1.0, first / (1 - expected / (events + 1)))
