"""Sentences with which canary tests describe their results, word for word."""

import math

import pytest

from penstock.core.canary.compared_metrics import FailedRequests, Tpot, Ttft
from penstock.core.canary.counts import Counts
from penstock.core.canary.estimate import NO_ESTIMATE, Estimate
from penstock.core.canary.proportions import ProportionEstimate
from penstock.core.spec.canary import CanarySpec

SPEC = CanarySpec()


def describe_shift(kind, estimate):
    class Estimated(kind):
        def estimate(self):
            return estimate

    return Estimated().describe(SPEC)


def test_a_shift_is_told_with_its_bounds_and_requests():
    estimate = Estimate(math.log(1.25), 2500.0, 60.0, 1234, 11_106)
    radius = estimate.radius(math.log(1.1), 0.01)
    low, high = (100 * (1.25 * math.exp(by) - 1) for by in (-radius, radius))
    assert 10 < low < 24 < 26 < high < 45
    assert describe_shift(Ttft, estimate) == (
        f"TTFT of the canary is +25.0 % against its control (between +{low:.1f} % and "
        f"+{high:.1f} %) over 1,234 and 11,106 requests"
    )


@pytest.mark.parametrize(
    ("difference", "told"),
    [
        (0.0, "is +0.0 % against"),
        (math.log(0.8), "is -20.0 % against"),
        (math.log(3.0), "is +200.0 % against"),
        (50.0, "is +810208.4 % against"),  # the largest value that is shown
    ],
)
def test_a_difference_of_logs_is_told_in_percent(difference, told):
    assert told in describe_shift(Tpot, Estimate(difference, 1e6, 60.0, 9, 9))


def test_too_few_requests_are_told_instead_of_bounds():
    assert describe_shift(Ttft, NO_ESTIMATE) == "TTFT: too few requests to compare yet"


def test_shares_are_told_in_points():
    class Read(FailedRequests):
        def reading(self, alpha):
            return ProportionEstimate(-0.0025, 0.0131, Counts(2000, 5), Counts(18_000, 90))

    assert Read(0.01).describe(SPEC) == (
        "Errors: 5 of 2,000 requests to the canary and 90 of 18,000 to its control, "
        "-0.25 points (at most +1.31)"
    )
