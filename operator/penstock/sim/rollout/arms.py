"""Counts simulated requests for a canary's comparison, one at a time or all of a span at once.

Both ways fill every field that gateways count, so the simulators measure a new quantity here.
"""

import numpy as np
from numpy.typing import NDArray

from penstock.core.canary.arm import NO_REQUESTS, Answer, Arm
from penstock.core.canary.bins import (
    CONCURRENCY_BOUNDS,
    LENGTH_BOUNDS_TOKENS,
    NUM_BINS,
    NUM_CONCURRENCY_BINS,
    NUM_QUEUE_BINS,
    NUM_TPOT_BINS,
    QUEUE_BOUNDS,
    Binned,
)
from penstock.core.canary.moments import NOTHING, Moments
from penstock.sim.request import Request
from penstock.sim.rollout.requests import Floats, Requests


def answer_of(request: Request, *, violates: bool) -> Answer:
    """The answer to a request that has got a first token. violates: whether it missed an objective."""
    assert request.ttft_s is not None
    return Answer(
        output_tokens=request.output_tokens,
        is_empty=False,
        violates=violates,
        ahead=request.ahead,
        concurrent=request.beside,
        prompt_tokens=request.prompt_tokens,
        cached_tokens=request.cached_tokens,
        ttft_s=request.ttft_s - (request.sent_s - request.arrival_s),
        tpot_s=request.tpot_s if request.output_tokens > 1 else None,
        overall_s=request.ttft_s,
    )


def arms_of(
    side: Requests,
    violated: NDArray[np.bool_],
    block: NDArray[np.int64],
    blocks: int,
    *,
    streams: bool,
) -> list[Arm]:
    """The counts of one side of a canary in each of `blocks` blocks.

    violated: requests that missed an objective or failed. block: index of each request's block. streams:
    whether answers are streamed.
    """
    good = ~side.failed
    length = np.searchsorted(LENGTH_BOUNDS_TOKENS, side.prompt_tokens)
    # A single-server queue decodes no other request, so the requests beside are those ahead.
    ahead = NUM_QUEUE_BINS * length + np.searchsorted(QUEUE_BOUNDS, side.ahead)
    beside = NUM_CONCURRENCY_BINS * length + np.searchsorted(CONCURRENCY_BOUNDS, side.ahead)
    ttft = _cells((block * NUM_BINS + ahead)[good], side.ttft[good], blocks * NUM_BINS)
    tpot = _cells((block * NUM_TPOT_BINS + beside)[good], side.tpot[good], blocks * NUM_TPOT_BINS)
    overall = _cells(block[good], (side.ttft if streams else _whole(side))[good], blocks)
    output = _cells(block[good], side.output[good], blocks)
    missed = _cells(
        (block * NUM_QUEUE_BINS + np.searchsorted(QUEUE_BOUNDS, side.ahead))[good],
        violated[good].astype(np.float64),
        blocks * NUM_QUEUE_BINS,
    )
    requests = np.bincount(block, minlength=blocks).tolist()
    errors = np.bincount(block[side.failed], minlength=blocks).tolist()
    violations = np.bincount(block[violated], minlength=blocks).tolist()
    prompt = np.bincount(block, side.prompt_tokens, blocks).tolist()
    cached = np.bincount(block, side.prompt_tokens * side.cached_share, blocks).tolist()
    return [
        Arm(
            requests=requests[i],
            errors=errors[i],
            violations=violations[i],
            empty_outputs=0,
            ttft=ttft[i * NUM_BINS : (i + 1) * NUM_BINS] if streams else NO_REQUESTS.ttft,
            tpot=tpot[i * NUM_TPOT_BINS : (i + 1) * NUM_TPOT_BINS] if streams else NO_REQUESTS.tpot,
            overall=overall[i],
            output=output[i],
            missed=missed[i * NUM_QUEUE_BINS : (i + 1) * NUM_QUEUE_BINS],
            prompt_tokens=round(prompt[i]),
            cached_tokens=round(cached[i]),
            tenants={},
        )
        for i in range(blocks)
    ]


def _whole(side: Requests) -> Floats:
    """Log seconds of whole answers."""
    seconds: Floats = np.log(np.exp(side.ttft) + np.exp(side.tpot + side.output))
    return seconds


def _cells(cell: NDArray[np.int64], values: Floats, size: int) -> Binned:
    n = np.bincount(cell, minlength=size).tolist()
    total = np.bincount(cell, values, size).tolist()
    squares = np.bincount(cell, values * values, size).tolist()
    return tuple(
        Moments(count, total[i], squares[i]) if count else NOTHING for i, count in enumerate(n)
    )
