"""Outlier ejection: when engines on which requests fail are left out, and for how long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.routing.outliers import EJECT_AFTER, LAST_EJECTION_S, Health, ejected


def failing(failures=EJECT_AFTER, now=0.0, *, is_unreachable=False):
    health = Health()
    for _ in range(failures):
        health = health.after_failure(now, is_unreachable=is_unreachable)
    return health


def test_health_ejects_after_failures_in_a_row_and_lets_one_probe_through():
    health = Health()
    for _ in range(EJECT_AFTER - 1):
        health = health.after_failure(100.0)
        assert not health.is_ejected(100.0)
    health = health.after_failure(100.0)

    assert health.is_ejected(100.0)
    assert health.is_ejected(100.99)
    assert not health.is_ejected(101.0)
    probing = health.while_probed(101.0)
    assert probing.is_ejected(101.5)
    assert not probing.is_ejected(102.0)
    again = probing.after_failure(101.2)
    assert again.is_ejected(103.1)
    assert not again.is_ejected(103.2)


def test_what_each_step_leaves():
    first = Health().after_failure(100.0, is_unreachable=True)
    assert first == Health(failures=1, retry_at_s=100.0, is_unreachable=True)
    third = first.after_failure(100.0).after_failure(100.0)
    assert third == Health(failures=3, ejections=1, retry_at_s=101.0)
    assert third.after_failure(100.5) == Health(failures=4, ejections=1, retry_at_s=101.0)
    probed = third.while_probed(101.0)
    assert probed == Health(failures=3, ejections=1, retry_at_s=102.0, is_probed=True)
    assert probed.after_failure(101.5) == Health(failures=4, ejections=2, retry_at_s=103.5)
    # The ejection is over, and nobody has tried the engine: the next failure ejects it for longer.
    assert third.after_failure(101.0) == Health(failures=4, ejections=2, retry_at_s=103.0)


def test_that_an_answer_broke_off_is_kept():
    health = Health().after_failure(100.0).after_failure(100.0, broke_off=True)
    assert health == Health(failures=2, retry_at_s=100.0, has_broken_off=True)
    assert health.after_failure(100.0).has_broken_off


@pytest.mark.parametrize(
    ("failures", "excused"),
    [
        (5, Health(failures=4, ejections=2, retry_at_s=9.0)),
        (4, Health(failures=3, ejections=2, retry_at_s=9.0)),
        (3, Health(failures=2, retry_at_s=9.0)),
        (1, Health(retry_at_s=9.0)),
        (0, Health(retry_at_s=9.0)),
    ],
)
def test_what_an_excuse_leaves(failures, excused):
    assert Health(failures=failures, ejections=2, retry_at_s=9.0).after_excuse() == excused


def test_the_ejection_grows_to_its_bound():
    health, lengths_s = failing(), []
    for _ in range(8):
        now = health.retry_at_s
        health = health.while_probed(now).after_failure(now)
        lengths_s.append(health.retry_at_s - now)
    assert lengths_s == [2, 4, 8, 16] + [LAST_EJECTION_S] * 4


def test_a_burst_of_failures_is_one_ejection():
    """A hundred requests were there when the engine began to fail."""
    assert failing(100).retry_at_s == failing().retry_at_s


def test_an_excuse_takes_back_what_made_it_fail():
    assert failing().is_ejected(0.5)
    assert not failing().after_excuse().is_ejected(0.5)
    assert Health().after_excuse() == Health()


@pytest.mark.parametrize(("pods", "out"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (8, 4)])
def test_at_most_half_are_ejected_and_one_always_may_be(pods, out):
    names = [f"p{n}" for n in range(pods)]
    assert len(ejected(names, {name: failing() for name in names}, 0.5)) == out


def test_those_that_failed_most_are_ejected_first():
    health = {"a": failing(3), "b": failing(5), "c": failing(4), "d": failing(3)}
    assert ejected("abcd", health, 0.5) == {"b", "c"}


def test_unreachable_engines_are_all_left_out():
    """Unreachable engines carry no load, so MAX_EJECTED_SHARE does not apply to them."""
    gone = {name: failing(is_unreachable=True) for name in "abcd"}
    assert ejected("abcde", gone, 0.5) == set("abcd")
    assert ejected("abcde", gone | {"e": failing()}, 0.5) == set("abcde")


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 9)), st.floats(0, 40))
def test_the_share_holds_whatever_failed(failures, now):
    pods = "abcdefgh"
    out = ejected(pods, {pod: failing(count) for pod, count in failures.items()}, now)
    assert len(out) <= 4
    assert all(failures[pod] >= EJECT_AFTER for pod in out)
