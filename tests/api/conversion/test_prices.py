"""Conversion of prices to core's."""

from decimal import Decimal

import pytest
from pydantic import ValidationError

from penstock.api.conversion.prices import to_prices
from penstock.api.inferenceservice.prices import Prices as PricesField
from penstock.core.spec.prices import Prices


def test_prices_are_exact() -> None:
    written = {
        "perMillionPromptTokens": "0.15",
        "perMillionCachedTokens": "0",
        "perMillionOutputTokens": "0.60",
    }
    PricesField.model_validate(written)
    assert to_prices({"spec": {"prices": written}}) == Prices(
        Decimal("0.15"), Decimal(0), Decimal("0.60")
    )


@pytest.mark.parametrize("spec", [{}, {"prices": {}}, {"prices": None}])
def test_a_service_needs_no_prices(spec: object) -> None:
    assert to_prices({"spec": spec}) == Prices()


@pytest.mark.parametrize("text", ["-1", "1e3", "1,5", "", "free", "1000000000001"])
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        PricesField.model_validate({"perMillionPromptTokens": text})
