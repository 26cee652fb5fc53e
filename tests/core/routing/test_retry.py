"""Which failed attempts are tried again, and how often."""

import pytest

from penstock.core.routing.charge import Ending
from penstock.core.routing.retry import may_retry, needs_budget, tries_other_version

CONNECT, UNSENT, RESET, INVALID = Ending.CONNECT, Ending.UNSENT, Ending.RESET, Ending.INVALID
UNAVAILABLE, ERROR, NO_COPY = Ending.UNAVAILABLE, Ending.ERROR, Ending.NO_COPY


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        ([], True),
        ([ERROR], True),
        ([ERROR, ERROR], False),
        ([RESET], True),
        ([RESET, RESET], False),
        ([INVALID], True),
        ([INVALID, INVALID], False),
        ([ERROR, RESET], False),
        ([RESET, UNAVAILABLE], True),
        ([UNAVAILABLE, RESET], True),
        ([RESET, UNAVAILABLE, UNAVAILABLE], False),
        ([UNSENT] * 2, True),
        ([UNSENT] * 3, False),
        ([CONNECT] * 50, True),
        ([CONNECT] * 50 + [UNAVAILABLE] * 3, False),
        ([NO_COPY] * 2, True),
        ([NO_COPY] * 3, False),
        ([Ending.NO_FIRST_BYTE], False),
    ],
)
def test_what_may_be_tried_again(failures, expected):
    assert may_retry(failures, max_attempts=3) is expected


def test_with_one_attempt_only_what_no_engine_got_is_tried_again():
    tried = {ending for ending in Ending if may_retry([ending], max_attempts=1)}
    assert tried == {CONNECT}


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        ([], False),
        ([CONNECT], True),
        ([Ending.UNREADY], False),
        ([Ending.UNREADY, RESET], True),
    ],
)
def test_what_the_retry_budget_bounds(failures, expected):
    assert needs_budget(failures) is expected


@pytest.mark.parametrize(
    ("failures", "max_attempts", "is_tried"),
    [
        (["error"], 5, True),
        (["error"], 2, True),
        (["error"], 1, False),  # there is no next attempt
        (["connect"], 5, False),
        (["connect", "reset"], 5, True),
        (["error", "error"], 5, False),
        (["copy_unavailable"], 5, False),
        (["copy_unavailable"], 2, True),  # there is no further attempt
        (["copy_unavailable", "unready", "copy_unavailable"], 5, True),
        (["copy_unavailable", "unready", "copy_unavailable"], 3, False),
        (["copy_unavailable"] * 3, 5, False),
    ],
)
def test_another_version_is_tried_where_the_request_may_be_at_fault(
    failures, max_attempts, is_tried
):
    assert tries_other_version([Ending(each) for each in failures], max_attempts) == is_tried
