"""Which failures of a request send it to a fallback, and to which."""

import pytest

from penstock.core.routing.charge import Ending
from penstock.core.routing.fallback import (
    REASONS_BY_REJECTION,
    choose_fallback,
    fallback_reason,
    needs_retry_budget,
)
from penstock.core.routing.route import ADAPTER, Backend, Fallback, FallbackReason
from penstock.observability.metrics.gateway import REJECTION

OVERLOAD, ERROR, ABSENCE, LATE = FallbackReason


@pytest.mark.parametrize(
    ("rejection", "failures", "expected"),
    [
        ("overloaded", [], OVERLOAD),
        ("queue_full", [], OVERLOAD),
        ("displaced", [], OVERLOAD),
        ("no_endpoint", [], ABSENCE),
        ("scaled_to_zero", [], ABSENCE),
        ("stalled", [], ABSENCE),
        ("service_missing", [], ABSENCE),
        ("route_broken", [], ABSENCE),
        ("adapter_load_failed", [], ABSENCE),
        ("engines_failed", [Ending.ERROR, Ending.ERROR], ERROR),
        ("engines_failed", [Ending.UNAVAILABLE], ERROR),
        ("engines_failed", [Ending.CONNECT] * 3, ABSENCE),
        ("engines_failed", [Ending.CONNECT, Ending.RESET], ERROR),
        ("engines_failed", [Ending.UNREADY], ABSENCE),
        ("engines_failed", [], ABSENCE),
        ("no_endpoint", [Ending.CONNECT], ABSENCE),
        ("no_endpoint", [Ending.RESET], ERROR),
        ("queue_full", [Ending.ERROR], ERROR),
        ("late_first_token", [], LATE),
        ("late_first_token", [Ending.ERROR], LATE),
        # Errors of the client, and limits of its tenant or of the gateway.
        ("invalid_request", [], None),
        ("rate_limit_exceeded", [], None),
        ("insufficient_quota", [], None),
        ("concurrency", [], None),
        ("tenant_queue_full", [], None),
        ("model_moved", [], None),
        ("connections", [], None),
        ("memory", [], None),
        ("shutdown", [Ending.ERROR], None),
    ],
)
def test_reason_of_a_failure(
    rejection: str, failures: list[Ending], expected: FallbackReason | None
) -> None:
    assert fallback_reason(rejection, failures) is expected


def test_reasons_are_those_of_the_gateways_errors() -> None:
    assert REASONS_BY_REJECTION.keys() <= set(REJECTION.values)


def test_only_errors_need_the_retry_budget() -> None:
    assert [each for each in FallbackReason if needs_retry_budget(each)] == [ERROR]


def test_labels_are_in_lower_case() -> None:
    labels = [each.label for each in FallbackReason]
    assert labels == ["overload", "error", "absence", "late_first_token"]


SMALL, TUNED, FAR = Backend("small"), Backend("small", ADAPTER), Backend("far")
FALLBACKS = [Fallback(SMALL, frozenset({OVERLOAD})), Fallback(TUNED), Fallback(FAR)]


@pytest.mark.parametrize(
    ("reason", "tried", "unusable", "expected"),
    [
        (OVERLOAD, set(), set(), SMALL),
        (ERROR, set(), set(), TUNED),
        (OVERLOAD, {SMALL}, set(), TUNED),
        (OVERLOAD, set(), {SMALL}, TUNED),
        (OVERLOAD, {SMALL}, {TUNED}, FAR),
        (ABSENCE, {TUNED}, {FAR}, None),
        (LATE, {SMALL, TUNED, FAR}, set(), None),
    ],
)
def test_first_usable_fallback_for_the_reason_is_chosen(
    reason: FallbackReason, tried: set[Backend], unusable: set[Backend], expected: Backend | None
) -> None:
    found = choose_fallback(FALLBACKS, reason, tried, lambda backend: backend not in unusable)
    assert (None if found is None else found.backend) == expected
