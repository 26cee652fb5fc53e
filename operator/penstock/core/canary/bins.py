"""Bins of requests with like conditions, in which latencies and missed objectives are compared."""

from bisect import bisect_left
from functools import reduce

from penstock.core.canary.moments import NOTHING, Moments

# Upper bounds of the prompt-length bins; the last bin has none. With powers of two, 4 % of the variance of
# log length remains within a bin if lengths spread over a decade.
LENGTH_BOUNDS_TOKENS = (128, 256, 512, 1024, 2048, 4096, 8192)
NUM_LENGTH_BINS = len(LENGTH_BOUNDS_TOKENS) + 1
# Upper bounds of the bins of requests ahead: those that an engine had not started to answer when it
# received a request. Queue length explains most of a queue's effect on TTFT; finer bins explain little more.
QUEUE_BOUNDS = (0, 1, 3, 7, 15)
NUM_QUEUE_BINS = len(QUEUE_BOUNDS) + 1
NUM_BINS = NUM_LENGTH_BINS * NUM_QUEUE_BINS
# Upper bounds of the bins of concurrent requests of an engine: they share its steps, so TPOT grows with
# them, by a few percent for half as many more. A request counts in the bin of the mean of the start and the
# end of its answer, because concurrency on the canary grows while traffic moves there.
CONCURRENCY_BOUNDS = (0, 1, 2, 3, 5, 8, 12, 18, 27, 40, 60)
NUM_CONCURRENCY_BINS = len(CONCURRENCY_BOUNDS) + 1
NUM_TPOT_BINS = NUM_LENGTH_BINS * NUM_CONCURRENCY_BINS

Binned = tuple[Moments, ...]
EMPTY_BINS: Binned = (NOTHING,) * NUM_BINS
EMPTY_TPOT_BINS: Binned = (NOTHING,) * NUM_TPOT_BINS
EMPTY_QUEUE_BINS: Binned = (NOTHING,) * NUM_QUEUE_BINS


def ttft_bin(prompt_tokens: int, ahead: int) -> int:
    """Index of a request's TTFT bin: by prompt length, then by requests ahead."""
    length = bisect_left(LENGTH_BOUNDS_TOKENS, prompt_tokens)
    return length * NUM_QUEUE_BINS + queue_bin(ahead)


def queue_bin(ahead: int) -> int:
    """Index of a request's bin by requests ahead, for missed objectives."""
    return bisect_left(QUEUE_BOUNDS, ahead)


def tpot_bin(prompt_tokens: int, concurrent: float) -> int:
    """Index of a request's TPOT bin: by prompt length, then by concurrent requests."""
    length = bisect_left(LENGTH_BOUNDS_TOKENS, prompt_tokens)
    return length * NUM_CONCURRENCY_BINS + bisect_left(CONCURRENCY_BOUNDS, concurrent)


def merge_length_bins(bins: "Binned", length: int) -> Moments:
    """Sum of all bins of one prompt length, over requests ahead or concurrent requests."""
    each = len(bins) // NUM_LENGTH_BINS
    return reduce(Moments.plus, bins[length * each : (length + 1) * each])
