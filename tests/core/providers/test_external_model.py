"""Limits, prices and the `Retry-After` of external models."""

from decimal import Decimal

import pytest

from penstock.core.providers.external_model import (
    ExternalModel,
    ExternalPrices,
    ExternalUse,
    retry_after_s,
)
from penstock.core.routing.apis import CHAT, COMPLETIONS, EMBEDDINGS, MESSAGES_API, RESPONSES

UNIX_S = 1_767_225_600.0  # 2026-01-01


def model(**fields: object) -> ExternalModel:
    return ExternalModel("a", "far", 0, "https://x.test", "OpenAI", "large", **fields)  # type: ignore[arg-type]


def test_provider_has_the_routes_of_its_api() -> None:
    assert [model().speaks(api) for api in (CHAT, COMPLETIONS, EMBEDDINGS)] == [True] * 3
    assert not model().speaks(MESSAGES_API)
    assert not model().speaks(RESPONSES)


def test_requests_at_a_time_are_bounded() -> None:
    use, limited = ExternalUse(), model(max_concurrent=1)
    assert use.shortage_s(limited, 0.0) is None
    use.note_sent(0.0)
    assert use.shortage_s(limited, 1.0) == 1.0
    use.note_ended(0, 2.0)
    assert use.shortage_s(limited, 2.0) is None


def test_requests_in_a_minute_are_bounded() -> None:
    use, limited = ExternalUse(), model(requests_per_minute=2)
    for at_s in (0.0, 10.0):
        assert use.shortage_s(limited, at_s) is None
        use.note_sent(at_s)
        use.note_ended(0, at_s)
    assert use.shortage_s(limited, 20.0) == 40.0
    assert use.shortage_s(limited, 60.0) is None


def test_tokens_in_a_minute_are_bounded() -> None:
    use, limited = ExternalUse(), model(tokens_per_minute=100)
    for at_s, tokens in ((0.0, 60), (30.0, 40)):
        use.note_sent(at_s)
        use.note_ended(tokens, at_s)
    assert use.shortage_s(limited, 45.0) == 15.0
    assert use.shortage_s(limited, 60.0) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30.0),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 0.0),
        ("soon", 1.0),
        ("-5", 1.0),
        ("", 1.0),
    ],
)
def test_both_forms_of_retry_after(value: str, seconds: float) -> None:
    assert retry_after_s(value, UNIX_S) == seconds


def test_nothing_is_sent_before_the_time_of_retry_after() -> None:
    use = ExternalUse()
    assert use.note_retry_after("30", 100.0, UNIX_S) == 30.0
    assert use.shortage_s(model(), 110.0) == 20.0
    assert use.shortage_s(model(), 130.0) is None
    assert use.note_retry_after("999999999", 0.0, UNIX_S) == 3600.0


def test_cost_of_tokens() -> None:
    prices = ExternalPrices(Decimal("0.50"), Decimal("1.50"), "USD")
    assert prices.cost(1_000_000, 2_000_000) == Decimal("3.5")
