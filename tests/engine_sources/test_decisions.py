"""Pure decisions of a fetch: retries, rates, progress, evictions, answers of servers."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_engine.contract.fetch_output import progress_text
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.progress import mean_rate
from penstock_engine.sources.protocols.http_errors import retry_after_s, status_error
from penstock_engine.sources.retry import retry_delay_s
from penstock_engine.sources.storage.eviction import CachedModel, choose_evictions
from penstock_engine.sources.transfer_rate import TransferRate

LIMITS = FetchLimits(first_delay_s=1.0, max_delay_s=8.0, max_attempts=6)
PASSING = FetchError("ServerError", "it fails", is_retryable=True)
FINAL = FetchError("NotFound", "nothing there")


@pytest.mark.parametrize(
    ("num_attempts", "jitter", "expected"),
    [(1, 1.0, 1.0), (1, 0.0, 0.5), (2, 1.0, 2.0), (4, 1.0, 8.0), (5, 1.0, 8.0), (6, 1.0, None)],
)
def test_delays_double_up_to_a_limit(
    num_attempts: int, jitter: float, expected: float | None
) -> None:
    assert retry_delay_s(PASSING, num_attempts, 100.0, jitter, LIMITS) == expected


def test_an_error_that_stays_is_not_retried() -> None:
    assert retry_delay_s(FINAL, 1, 100.0, 1.0, LIMITS) is None


def test_a_servers_wish_is_obeyed_or_the_fetch_gives_up() -> None:
    limited = FetchError("RateLimited", "slow", is_retryable=True, retry_after_s=30.0)
    assert retry_delay_s(limited, 1, 100.0, 1.0, LIMITS) == 30.0
    assert retry_delay_s(limited, 1, 20.0, 1.0, LIMITS) is None


def test_retry_after_is_seconds_or_a_date() -> None:
    now = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
    assert retry_after_s({"retry-after": "7"}, now) == 7.0
    assert retry_after_s({"retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, now) == 30.0
    assert retry_after_s({"retry-after": "soon"}, now) is None
    assert retry_after_s({}, now) is None
    assert retry_after_s({"retry-after": "99999999999"}, now) == 86400.0


@pytest.mark.parametrize(
    ("status", "reason", "is_retryable"),
    [
        (401, "Unauthorized", False), (403, "Forbidden", False), (404, "NotFound", False),
        (408, "ServerError", True), (412, "SourceChanged", True), (416, "WrongSize", False),
        (418, "UnexpectedAnswer", False), (429, "RateLimited", True), (500, "ServerError", True),
        (503, "ServerError", True),
    ],
)  # fmt: skip
def test_a_status_has_a_reason(status: int, reason: str, is_retryable: bool) -> None:
    error = status_error(status, {}, "host", "HF_TOKEN")
    assert (error.reason, error.is_retryable) == (reason, is_retryable)


def test_a_trickle_ends_at_the_end_of_its_window() -> None:
    rate = TransferRate(FetchLimits(min_bytes_per_s=100.0, rate_window_s=10.0), 0.0)
    rate.add(500, 9.0)
    rate.add(500, 10.0)  # exactly the minimum
    rate.add(999, 19.9)
    with pytest.raises(FetchError, match="TooSlow") as slow:
        rate.add(0, 20.0)
    assert slow.value.is_retryable


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        ((int(3.1 * 2**30), int(14.2 * 2**30), 210 << 20), "3.1 of 14.2 GiB, 210 MiB/s, 54 s left"),
        ((1 << 19, 1 << 20, 0.0), "0.5 of 1.0 MiB, nothing arrives"),
        ((9 << 20, 9 << 20, 3 << 19), "9.0 of 9.0 MiB, 1.5 MiB/s, 0 s left"),
        ((10 << 20, 9 << 20, 1 << 20), "10.0 of 9.0 MiB, 1.0 MiB/s, 0 s left"),
    ],
)
def test_progress_in_words(progress: tuple[int, int, float], text: str) -> None:
    assert progress_text(*progress) == text


def test_the_rate_is_the_mean_over_all_samples() -> None:
    assert mean_rate([(0.0, 0), (2.0, 10), (4.0, 40)]) == 10.0
    assert mean_rate([(0.0, 0)]) == 0.0


MODELS = [
    CachedModel("old", 1.0, {"a": 10, "shared": 100}),
    CachedModel("used", 2.0, {"b": 10}, is_in_use=True),
    CachedModel("middle", 3.0, {"shared": 100, "c": 5}),
    CachedModel("new", 4.0, {"d": 10}),
]


@pytest.mark.parametrize(
    ("excess_bytes", "expected"),
    [
        (0, []),
        (10, ["old"]),
        (11, ["old", "middle"]),
        (115, ["old", "middle"]),
        (116, ["old", "middle", "new"]),
        (126, None),
    ],
)
def test_the_least_recently_used_models_go_first(
    excess_bytes: int, expected: list[str] | None
) -> None:
    assert choose_evictions(MODELS, excess_bytes) == expected


@given(
    st.lists(
        st.builds(
            CachedModel,
            st.uuids().map(str),
            st.floats(0, 100),
            st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 50)),
            st.booleans(),
        ),
        max_size=8,
    ),
    st.integers(0, 300),
)
def test_a_model_in_use_is_never_chosen(models: list[CachedModel], excess_bytes: int) -> None:
    used = {model.name for model in models if model.is_in_use}
    assert not used & set(choose_evictions(models, excess_bytes) or [])
