"""Whether an engine is at fault that a request has no answer yet."""

import pytest

from penstock.gateway.stats.response_times import ResponseTimes


@pytest.mark.parametrize(
    ("sent_s", "expected_s", "is_late"),
    [(0.0, 0.0, True), (4.0, 0.0, True), (9.0, 0.0, False), (0.0, 9.0, True), (0.0, 11.0, False)],
)
def test_engine_is_late_with_time_of_its_own_beyond_what_was_predicted(
    sent_s: float, expected_s: float, is_late: bool
) -> None:
    clock = iter([sent_s, 10.0])
    times = ResponseTimes(lambda: next(clock), 0.0)
    times.note_sent()
    assert times.is_engine_late(expected_s) is is_late
