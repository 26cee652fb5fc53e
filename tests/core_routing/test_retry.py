"""Which failed attempts are tried again, and how often."""

import pytest

from penstock.core.routing.retry import Failure, failure_of, may_retry

CONNECT, RESET, UNAVAILABLE, ERROR, NO_COPY = Failure


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (200, None), (302, None), (400, None), (429, None), (499, None),
        (500, ERROR), (501, None), (502, UNAVAILABLE), (503, UNAVAILABLE), (504, None),
        (505, None), (507, ERROR), (599, ERROR),
    ],
)  # fmt: skip
def test_the_failure_of_a_status(status, failure):
    assert failure_of(status) is failure


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        ([], True),
        ([ERROR], True),
        ([ERROR, ERROR], False),
        ([ERROR, RESET], True),
        ([ERROR, RESET, ERROR], False),
        ([RESET, UNAVAILABLE], True),
        ([RESET, UNAVAILABLE, RESET], False),
        ([CONNECT] * 50, True),
        ([CONNECT] * 50 + [RESET] * 3, False),
        ([NO_COPY] * 2, True),
        ([NO_COPY] * 3, False),
    ],
)
def test_what_may_be_tried_again(failures, expected):
    assert may_retry(failures, max_attempts=3) is expected
