"""Evidence by prompt length, as the status shows it."""

import math
from dataclasses import replace

import pytest

from penstock.core.canary.arm import NO_REQUESTS
from penstock.core.canary.bins import EMPTY_TPOT_BINS, NUM_BINS, ttft_bin
from penstock.core.canary.moments import NOTHING, Moments
from penstock.core.rollout.by_prompt_length import compare_by_prompt_length


def arm(tokens, *seconds, ahead=0):
    bins = [NOTHING] * NUM_BINS
    bins[ttft_bin(tokens, ahead)] = Moments.of(map(math.log, seconds))
    return replace(NO_REQUESTS, requests=len(seconds), ttft=tuple(bins), tpot=EMPTY_TPOT_BINS)


@pytest.mark.parametrize(
    ("tokens", "bounds"), [(128, (0, 128)), (129, (128, 256)), (9000, (8192, None))]
)
def test_geometric_means_of_both_sides(tokens, bounds):
    (row,) = compare_by_prompt_length(arm(tokens, 0.2, 0.8, ahead=5), arm(tokens, 0.1, 0.4, 0.2))
    assert (row.low_tokens, row.high_tokens) == bounds
    assert (row.ttft.canary_n, row.ttft.control_n) == (2, 3)
    assert row.ttft.effect == pytest.approx(1.0)
    assert row.tpot.effect is None


def test_bins_of_one_side_are_told_too():
    first, second = compare_by_prompt_length(arm(100, 1.0), arm(500, 2.0))
    assert (first.ttft.effect, first.ttft.canary_s, first.ttft.control_s) == (None, 1.0, None)
    assert (second.low_tokens, second.ttft.control_n) == (256, 1)
    assert list(compare_by_prompt_length(NO_REQUESTS, NO_REQUESTS)) == []


def test_both_latencies_are_told_of_both_sides():
    def timed(ttft_s, tpot_s):
        bins = [NOTHING] * NUM_BINS
        bins[0] = Moments.of([math.log(ttft_s)])
        tpot = (Moments.of([math.log(tpot_s)]), *EMPTY_TPOT_BINS[1:])
        return replace(NO_REQUESTS, requests=1, ttft=tuple(bins), tpot=tpot)

    [row] = compare_by_prompt_length(timed(0.4, 0.03), timed(0.2, 0.02))
    assert (row.ttft.effect, row.tpot.effect) == (pytest.approx(1.0), pytest.approx(0.5))
    assert row.tpot.canary_s == pytest.approx(0.03)
    [alone] = compare_by_prompt_length(NO_REQUESTS, timed(0.2, 0.02))
    assert (alone.ttft.effect, alone.tpot.effect, alone.tpot.control_n) == (None, None, 1)
