"""Schema of spec.prices: what tokens cost, for showback."""

from typing import Annotated, Any

from penstock.api.schema.defaults import optional
from penstock.api.schema.rules import Model
from penstock.api.schema.scalars import MAX_DECIMAL_LENGTH, decimal

# Above every price of a million tokens in any currency.
_PRICE = decimal(0, 1e12)


def _price(description: str) -> Any:
    return optional(description, max_length=MAX_DECIMAL_LENGTH)


class Prices(Model):
    """Prices in the currency of the platform. They change nothing but what `penstock usage` shows."""

    per_million_prompt_tokens: Annotated[str | None, _PRICE] = _price(
        "Price of a million tokens of prompts, such as '0.15'."
    )
    per_million_cached_tokens: Annotated[str | None, _PRICE] = _price(
        "Price of a million tokens of prompts that came from a cache. Default: as other tokens of prompts."
    )
    per_million_output_tokens: Annotated[str | None, _PRICE] = _price(
        "Price of a million tokens of answers, such as '0.60'."
    )
