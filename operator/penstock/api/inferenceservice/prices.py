"""Schema of spec.prices: what tokens and accelerators cost, for showback."""

from typing import Annotated, Any

from penstock.api.schema.defaults import optional
from penstock.api.schema.rules import Model
from penstock.api.schema.scalars import MAX_DECIMAL_LENGTH, decimal

# Above every price of a million tokens, or of an hour, in any currency.
_PRICE = decimal(0, 1e12)


def _price(description: str, alias: str | None = None) -> Any:
    rules: Any = {} if alias is None else {"alias": alias}
    return optional(description, max_length=MAX_DECIMAL_LENGTH, **rules)


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
    per_gpu_hour: Annotated[str | None, _PRICE] = _price(
        "Price of an accelerator for an hour, such as '2.5'.", alias="perGPUHour"
    )
