"""Health of endpoints, the retry budget, and counts by key."""

from dataclasses import replace

import pytest

from penstock.core.routing.pick import Endpoint
from penstock.gateway.limits.keyed_count import KeyedCount
from penstock.gateway.limits.retry_budget import RetryBudget
from penstock.gateway.state.endpoint_state import FORGET_AFTER_S, EndpointStates

ENGINES = tuple(Endpoint(f"default/{name}", "10.0.0.1:8000", "r1") for name in "abcd")
A, B, C, D = (engine.pod for engine in ENGINES)


def fail(endpoints, pod, now, times=3, *, is_unreachable=False):
    for _ in range(times):
        endpoints.note_failure(pod, now, is_unreachable=is_unreachable)


def test_endpoint_is_ejected_until_its_time_is_over_or_it_answers():
    endpoints = EndpointStates()
    assert endpoints.ejected(ENGINES, 100.0) == set()
    fail(endpoints, A, 100.0, times=2)
    assert (endpoints.ejected(ENGINES, 100.0), endpoints.suspects) == (set(), {A})
    fail(endpoints, A, 100.0, times=1)
    assert endpoints.ejected(ENGINES, 100.9) == {A}
    assert endpoints.ejected(ENGINES[1:], 100.9) == set()
    assert endpoints.ejected(ENGINES, 101.0) == set()
    endpoints.note_selected(A, 101.0)
    assert endpoints.ejected(ENGINES, 101.9) == {A}  # for all but its probe
    endpoints.note_response_complete(A)
    assert (endpoints.ejected(ENGINES, 101.9), endpoints.suspects) == (set(), set())
    endpoints.note_response_complete(A)


def test_endpoint_that_is_not_failing_has_no_probe():
    endpoints = EndpointStates()
    endpoints.note_selected(A, 100.0)
    fail(endpoints, B, 100.0, times=2)
    endpoints.note_selected(B, 100.0)
    assert endpoints.suspects == {B}
    fail(endpoints, B, 100.0, times=1)
    assert endpoints.ejected(ENGINES, 100.9) == {B}
    assert (
        endpoints.ejected(ENGINES, 101.0) == set()
    )  # still its first ejection, as no probe failed


def test_unreachable_endpoints_do_not_count_for_the_ejection_limit():
    endpoints = EndpointStates()
    for pod in (A, B, C):
        fail(endpoints, pod, 100.0)
    assert len(endpoints.ejected(ENGINES, 100.5)) == 2
    for pod in (A, B, C):
        fail(endpoints, pod, 100.5, times=1, is_unreachable=True)
    assert endpoints.ejected(ENGINES, 100.6) == {A, B, C}


def test_response_start_clears_failures_unless_responses_broke_off():
    endpoints = EndpointStates()
    for pod in (A, B):
        fail(endpoints, pod, 100.0)
    endpoints.note_failure(C, 100.0, broke_off=True)
    fail(endpoints, C, 100.0, times=2)
    for pod in (A, C, D):
        endpoints.note_response_start(pod)
    assert endpoints.suspects == {B, C}
    assert endpoints.ejected(ENGINES, 100.5) == {B, C}
    endpoints.note_response_complete(C)
    assert endpoints.suspects == {B}


def test_excuse_takes_back_one_failure_of_each_pod():
    endpoints = EndpointStates()
    for pod in (A, B):
        fail(endpoints, pod, 100.0)
    endpoints.excuse_failures([A, B, C])
    assert endpoints.ejected(ENGINES, 100.5) == set()
    assert endpoints.suspects == {A, B}
    fail(endpoints, A, 100.0, times=1)
    assert endpoints.ejected(ENGINES, 100.5) == {A}


def test_failures_are_dropped_after_ten_minutes_without_requests():
    endpoints = EndpointStates()
    fail(endpoints, A, 100.0, times=1)
    fail(endpoints, B, 101.0, times=1)
    fail(endpoints, C, 100.0 + FORGET_AFTER_S, times=1)
    assert endpoints.suspects == {B, C}


@pytest.mark.parametrize(
    ("ratio", "minimum", "open_requests", "expected"),
    [(0.2, 1, 15, 3), (0.2, 1, 14, 2), (0.2, 3, 14, 3), (0.0, 2, 99, 2), (0.5, 1, 0, 1)],
)
def test_retry_budget_is_a_fraction_of_open_requests_with_a_minimum(
    ratio, minimum, open_requests, expected
):
    budget = RetryBudget(ratio, minimum)
    held = []
    while budget.has_room("a", open_requests):
        held.append(budget.hold("a"))
        held[-1].__enter__()
        assert budget.in_flight == len(held)
    assert len(held) == expected
    assert budget.has_room("b", open_requests)  # budgets are per service
    held.pop().__exit__(None, None, None)
    assert budget.has_room("a", open_requests)


def test_retry_budget_that_would_allow_no_retry_is_refused():
    """A failed request would wait for it in vain."""
    with pytest.raises(ValueError, match="must be 1 or more"):
        RetryBudget(0.2, 0)


def test_keyed_count():
    count = KeyedCount()
    assert (count.count("a"), count.total) == (0, 0)
    with count.hold("a"), count.hold("b"):
        with count.hold("a"):
            assert (count.count("a"), count.count("b"), count.total) == (2, 1, 3)
        assert (count.count("a"), count.count("b"), count.total) == (1, 1, 2)
        with pytest.raises(ZeroDivisionError), count.hold("a"):
            raise ZeroDivisionError
    assert (count.count("a"), count.total) == (0, 0)
    assert count._counts == {}


def test_health_belongs_to_the_pod_not_to_its_address():
    """A later pod may have the address of a deleted one."""
    endpoints = EndpointStates()
    fail(endpoints, A, 100.0)
    assert endpoints.ejected([replace(ENGINES[1], address=ENGINES[0].address)], 100.5) == set()
