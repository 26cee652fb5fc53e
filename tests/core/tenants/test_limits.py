"""Windows of usage limits."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.tenants.limits import Usage, Window, window_at
from penstock.core.tenants.tenant import WindowUnit

UNITS: tuple[WindowUnit, ...] = ("Second", "Minute", "Hour", "Day", "Month")


def epoch_s(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("unit", "start", "end"),
    [
        ("Second", "2028-02-29T23:59:59", "2028-03-01T00:00:00"),
        ("Minute", "2028-02-29T23:59:00", "2028-03-01T00:00:00"),
        ("Hour", "2028-02-29T23:00:00", "2028-03-01T00:00:00"),
        ("Day", "2028-02-29T00:00:00", "2028-03-01T00:00:00"),
        ("Month", "2028-02-01T00:00:00", "2028-03-01T00:00:00"),
    ],
)
def test_windows_follow_the_calendar_by_utc(unit: WindowUnit, start: str, end: str) -> None:
    now_s = epoch_s("2028-02-29T23:59:59") + 0.5
    assert window_at(unit, now_s) == Window(epoch_s(start), epoch_s(end))


def test_the_month_after_december_is_january() -> None:
    found = window_at("Month", epoch_s("2027-12-31T12:00:00"))
    assert found == Window(epoch_s("2027-12-01T00:00:00"), epoch_s("2028-01-01T00:00:00"))


@given(st.sampled_from(UNITS), st.floats(min_value=0, max_value=4e9))
def test_windows_have_no_gap_and_no_overlap(unit: WindowUnit, now_s: float) -> None:
    window = window_at(unit, now_s)
    assert window.start_s <= now_s < window.end_s
    following = window_at(unit, window.end_s)
    assert following.start_s == window.end_s
    assert window_at(unit, window.start_s) == window


@pytest.mark.parametrize(("now_s", "retry_after_s"), [(60, 60), (60.1, 60), (119.5, 1), (119, 1)])
def test_retry_after_is_whole_seconds_of_at_least_one(now_s: float, retry_after_s: int) -> None:
    assert window_at("Minute", now_s).retry_after_s(now_s) == retry_after_s


def test_tokens_are_of_prompt_and_output_and_cached_ones_are_part_of_the_prompt() -> None:
    usage = Usage(requests=1, prompt_tokens=7, output_tokens=5, cached_tokens=4)
    found = [
        usage.of("Requests"), usage.of("PromptTokens"), usage.of("OutputTokens"), usage.of("Tokens"),
    ]  # fmt: skip
    assert found == [1, 7, 5, 12]
