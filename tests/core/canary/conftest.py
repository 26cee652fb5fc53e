"""Blocks made of latencies that a test chooses."""

import math
import random
from dataclasses import replace

import pytest

from penstock.core.canary.arm import NO_REQUESTS
from penstock.core.canary.bins import (
    NUM_BINS,
    NUM_QUEUE_BINS,
    NUM_TPOT_BINS,
    queue_bin,
    tpot_bin,
    ttft_bin,
)
from penstock.core.canary.evidence import Block, Faults
from penstock.core.canary.moments import NOTHING, Moments


def arm(
    requests=10, *, ttft=(), tpot=(), errors=0, violations=0, empty=0, tokens=1024, ahead=0, hit=0.5
):
    """A side of a block; latencies in seconds."""

    def binned(seconds, bin_, num_bins):
        bins = [NOTHING] * num_bins
        bins[bin_] = Moments.of(math.log(s) for s in seconds)
        return tuple(bins)

    answers, late = requests - errors, violations - errors
    missed = [NOTHING] * NUM_QUEUE_BINS
    missed[queue_bin(ahead)] = Moments(answers, late, late)

    return replace(
        NO_REQUESTS,
        requests=requests,
        errors=errors,
        violations=violations,
        empty_outputs=empty,
        ttft=binned(ttft, ttft_bin(tokens, ahead), NUM_BINS),
        tpot=binned(tpot, tpot_bin(tokens, ahead), NUM_TPOT_BINS),
        overall=Moments.of(math.log(s) for s in ttft),
        output=Moments.of(5.0 for _ in range(answers)),
        missed=tuple(missed),
        prompt_tokens=1000,
        cached_tokens=round(1000 * hit),
    )


def random_arm(draw, requests, *, ttft=0.3, tpot=0.03, error_share=0.0, hit=0.5):
    """A side whose latencies scatter as they do; medians in seconds."""
    errors = sum(draw.random() < error_share for _ in range(requests))
    good = requests - errors
    return arm(
        requests,
        ttft=[ttft * math.exp(draw.gauss(0, 0.8)) for _ in range(good)],
        tpot=[tpot * math.exp(draw.gauss(0, 0.25)) for _ in range(good)],
        errors=errors,
        violations=errors,
        hit=hit,
    )


def block(canary, control, length_s=10.0, **faults):
    return Block(length_s=length_s, canary=canary, control=control, faults=Faults(**faults))


def blocks(count, *, seed=0, canary_requests=10, control_requests=90, **worse):
    draw = random.Random(seed)
    return [
        block(random_arm(draw, canary_requests, **worse), random_arm(draw, control_requests))
        for _ in range(count)
    ]


@pytest.fixture(name="make", scope="session")
def _make():
    class Make:
        arm = staticmethod(arm)
        block = staticmethod(block)
        blocks = staticmethod(blocks)

    return Make
