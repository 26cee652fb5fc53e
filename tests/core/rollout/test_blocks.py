"""Blocks of evidence: the engines' work on each side between two scrapes."""

from dataclasses import replace

import pytest

from penstock.core.canary.arm import NO_REQUESTS
from penstock.core.canary.evidence import Faults
from penstock.core.rollout.blocks import ComparedArms, build_block

SIDES = ComparedArms(frozenset({"n/c1", "n/c2"}), frozenset({"n/k1"}))


def arms(**requests):
    return {f"n/{pod}": replace(NO_REQUESTS, requests=count) for pod, count in requests.items()}


@pytest.mark.parametrize(
    ("before", "after", "canary", "control"),
    [
        (arms(c1=5, c2=7, k1=9), arms(c1=6, c2=9, k1=13), 3, 4),
        # New engines did all of it; those that went are not known.
        (arms(c1=5), arms(c1=6, c2=2, k1=4), 3, 4),
        (arms(c1=5, c2=7, k1=9), arms(c1=6), 1, 0),
        # Engines of neither side, such as the rest of stable.
        (arms(s1=100), arms(s1=900, c1=1, k1=1), 1, 1),
        # A count that began anew.
        (arms(c1=50, k1=9), arms(c1=3, k1=9), 3, 0),
        ({}, {}, 0, 0),
    ],
)
def test_requests_of_a_block(before, after, canary, control):
    faults = Faults(crash_loops=1)
    block = build_block(10.0, before, after, SIDES, faults)
    assert (block.canary.requests, block.control.requests) == (canary, control)
    assert (block.length_s, block.faults) == (10.0, faults)
