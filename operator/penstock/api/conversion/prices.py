"""Converts the prices of InferenceServices to core's."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from penstock.core.spec.prices import Prices


def to_prices(body: Mapping[str, Any]) -> Prices:
    """Read the prices of an InferenceService, none of which it has to have."""
    written = body["spec"].get("prices") or {}

    def price(name: str) -> Decimal | None:
        return None if written.get(name) is None else Decimal(written[name])

    return Prices(
        per_million_prompt_tokens=price("perMillionPromptTokens"),
        per_million_cached_tokens=price("perMillionCachedTokens"),
        per_million_output_tokens=price("perMillionOutputTokens"),
    )
