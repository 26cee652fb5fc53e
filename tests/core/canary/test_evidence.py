"""Evidence between two scrapes is the difference of their counters."""

import math
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.canary.arm import BINNED, COUNTERS, MOMENTS, NO_REQUESTS, Arm
from penstock.core.canary.bins import NUM_BINS
from penstock.core.canary.moments import NOTHING, Moments

moments = st.lists(st.floats(-14, 14), max_size=4).map(Moments.of)


def binned(num_bins):
    return st.dictionaries(st.integers(0, num_bins - 1), moments, max_size=5).map(
        lambda some: tuple(some.get(index, NOTHING) for index in range(num_bins))
    )


counters = {name: st.integers(0, 1000) for name in COUNTERS}
arms = st.builds(
    Arm,
    **{name: binned(len(getattr(NO_REQUESTS, name))) for name in BINNED},
    **dict.fromkeys(MOMENTS, moments),
    **counters,
    tenants=st.just({}),
)


def all_moments(arm):
    binned = [each for name in BINNED for each in getattr(arm, name)]
    return [*binned, *(getattr(arm, name) for name in MOMENTS)]


def numbers(arm):
    """All of it, as one flat list."""
    return [
        *(getattr(arm, name) for name in COUNTERS),
        *(number for m in all_moments(arm) for number in (m.n, m.total, m.squares)),
    ]


def test_every_field_has_one_kind():
    names = [*COUNTERS, *MOMENTS, *BINNED, "tenants"]
    assert sorted(names) == sorted(each.name for each in fields(Arm))


@given(arms, arms)
def test_what_was_added_is_what_came_since(before, gained):
    after = before.plus(gained)
    assert numbers(after) == numbers(gained.plus(before))
    assert numbers(after.increase_over(before)) == pytest.approx(numbers(gained), abs=1e-9)
    assert after.increase_over(after) == NO_REQUESTS
    assert after.increase_over(None) == after.plus(NO_REQUESTS) == after


@given(arms, arms)
def test_no_part_of_a_difference_is_negative(before, after):
    gained = after.increase_over(before)
    assert all(getattr(gained, name) >= 0 for name in COUNTERS)
    assert all(m.n >= 0 and m.squares >= 0 for m in all_moments(gained))


@given(arms, st.sampled_from(COUNTERS))
def test_a_counter_that_fell_began_anew(arm, name):
    assert arm.increase_over(replace(arm, **{name: getattr(arm, name) + 1})) == arm


def test_moments_that_fell_began_anew_too():
    arm = replace(NO_REQUESTS, requests=5, ttft=(Moments.of([0.1]), *[NOTHING] * (NUM_BINS - 1)))
    more = replace(
        NO_REQUESTS, requests=5, ttft=(Moments.of([0.1, 0.2]), *[NOTHING] * (NUM_BINS - 1))
    )
    assert arm.increase_over(more) == arm


def test_looks_an_hour_apart_lose_no_digits_that_matter():
    """A million requests before; the block's own mean is still right to a millionth."""
    long = Moments(1_000_000, -693_147.18, 1_120_453.0)
    block = Moments.of([math.log(0.5)] * 10)
    assert long.plus(block).increase_over(long).mean == pytest.approx(math.log(0.5), rel=1e-6)
