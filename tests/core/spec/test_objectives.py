"""Latency objectives, both and each alone."""

import pytest

from penstock.core.spec.objectives import MAX_WAIT_S, Objectives


@pytest.mark.parametrize(
    ("ttft", "tpot", "text", "max_wait_s"),
    [
        ("2s", "100ms", "TTFT 2 s and TPOT 0.1 s", 2.0),
        ("2m", None, "TTFT 120 s", 120.0),
        (None, "100ms", "TPOT 0.1 s", MAX_WAIT_S),
    ],
)
def test_an_objective_may_be_left_out(
    ttft: str | None, tpot: str | None, text: str, max_wait_s: float
) -> None:
    made = Objectives.parse(ttft, tpot, None)
    assert (made.text, made.max_wait_s, made.attainment) == (text, max_wait_s, 0.99)


def test_the_attainment_is_a_decimal_number() -> None:
    assert Objectives.parse("2s", None, "0.9500").attainment == 0.95
