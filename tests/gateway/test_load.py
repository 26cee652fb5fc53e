"""Load and health of engines, and the retry budget."""

from dataclasses import replace

import pytest

from penstock.core.routing.pick import Endpoint
from penstock.gateway.keyed_count import KeyedCount
from penstock.gateway.load import FORGET_AFTER_S, Loads, RetryBudget

ENGINES = tuple(Endpoint(f"default/{name}", "10.0.0.1:8000", "r1") for name in "abcd")
A, B, C, D = (engine.pod for engine in ENGINES)


def fail(loads, pod, now, times=3, *, is_unreachable=False):
    for _ in range(times):
        loads.failed(pod, now, is_unreachable=is_unreachable)


def test_tokens_in_flight():
    loads = Loads()
    with loads.hold(A, 10), loads.hold(B, 5):
        with loads.hold(A, 7):
            assert loads.tokens == {A: 17, B: 5}
        assert loads.tokens == {A: 10, B: 5}
    assert loads.tokens == {}


def test_an_engine_is_ejected_until_its_time_is_over_or_it_answers():
    loads = Loads()
    assert loads.ejected(ENGINES, 100.0) == set()
    fail(loads, A, 100.0, times=2)
    assert (loads.ejected(ENGINES, 100.0), loads.suspects) == (set(), {A})
    fail(loads, A, 100.0, times=1)
    assert loads.ejected(ENGINES, 100.9) == {A}
    assert loads.ejected(ENGINES[1:], 100.9) == set()
    assert loads.ejected(ENGINES, 101.0) == set()
    loads.picked(A, 101.0)
    assert loads.ejected(ENGINES, 101.9) == {A}  # for all but its probe
    loads.answered(A)
    assert (loads.ejected(ENGINES, 101.9), loads.suspects) == (set(), set())
    loads.answered(A)


def test_who_is_not_failing_has_no_probe():
    loads = Loads()
    loads.picked(A, 100.0)
    fail(loads, B, 100.0, times=2)
    loads.picked(B, 100.0)
    assert loads.suspects == {B}
    fail(loads, B, 100.0, times=1)
    assert loads.ejected(ENGINES, 100.9) == {B}
    assert loads.ejected(ENGINES, 101.0) == set()  # its first ejection, and no probe failed


def test_the_unreachable_do_not_count_for_the_share():
    loads = Loads()
    for pod in (A, B, C):
        fail(loads, pod, 100.0)
    assert len(loads.ejected(ENGINES, 100.5)) == 2
    for pod in (A, B, C):
        fail(loads, pod, 100.5, times=1, is_unreachable=True)
    assert loads.ejected(ENGINES, 100.6) == {A, B, C}


def test_an_answer_that_begins_clears_what_came_before_it():
    """But not where answers broke off: those had begun as well."""
    loads = Loads()
    for pod in (A, B):
        fail(loads, pod, 100.0)
    loads.failed(C, 100.0, broke_off=True)
    fail(loads, C, 100.0, times=2)
    for pod in (A, C, D):
        loads.began(pod)
    assert loads.suspects == {B, C}
    assert loads.ejected(ENGINES, 100.5) == {B, C}
    loads.answered(C)
    assert loads.suspects == {B}


def test_an_excuse_takes_one_failure_of_each_back():
    loads = Loads()
    for pod in (A, B):
        fail(loads, pod, 100.0)
    loads.excuse([A, B, C])
    assert loads.ejected(ENGINES, 100.5) == set()
    assert loads.suspects == {A, B}
    fail(loads, A, 100.0, times=1)
    assert loads.ejected(ENGINES, 100.5) == {A}


def test_a_failing_engine_is_forgotten_when_it_was_not_asked_for_long():
    loads = Loads()
    fail(loads, A, 100.0, times=1)
    fail(loads, B, 101.0, times=1)
    fail(loads, C, 100.0 + FORGET_AFTER_S, times=1)
    assert loads.suspects == {B, C}


@pytest.mark.parametrize(
    ("ratio", "minimum", "open_requests", "expected"),
    [(0.2, 0, 15, 3), (0.2, 0, 14, 2), (0.2, 3, 14, 3), (0.0, 2, 99, 2), (0.5, 1, 0, 1)],
)
def test_the_budget_is_a_share_of_the_open_requests_and_a_few_at_least(
    ratio, minimum, open_requests, expected
):
    budget = RetryBudget(ratio, minimum)
    held = []
    while budget.has_room("a", open_requests):
        held.append(budget.hold("a"))
        held[-1].__enter__()
        assert budget.in_flight == len(held)
    assert len(held) == expected
    assert budget.has_room("b", open_requests)  # each service has its own
    held.pop().__exit__(None, None, None)
    assert budget.has_room("a", open_requests)


def test_a_count_by_key():
    count = KeyedCount()
    assert (count.of("a"), count.total) == (0, 0)
    with count.hold("a"), count.hold("b"):
        with count.hold("a"):
            assert (count.of("a"), count.of("b"), count.total) == (2, 1, 3)
        assert (count.of("a"), count.of("b"), count.total) == (1, 1, 2)
        with pytest.raises(ZeroDivisionError), count.hold("a"):
            raise ZeroDivisionError
    assert (count.of("a"), count.total) == (0, 0)
    assert count._counts == {}


def test_an_address_is_not_the_engine():
    """Health belongs to a pod, as its address may later be another pod's."""
    loads = Loads()
    fail(loads, A, 100.0)
    assert loads.ejected([replace(ENGINES[1], address=ENGINES[0].address)], 100.5) == set()
