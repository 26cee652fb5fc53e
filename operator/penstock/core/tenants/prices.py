"""The cost of tokens by the prices of their service."""

from decimal import Decimal

from penstock.core.spec.prices import Prices
from penstock.core.tenants.limits import Usage

MILLION = 1_000_000


def token_cost(usage: Usage, prices: Prices) -> Decimal | None:
    """Return what the tokens of a service cost; None if it has no price of a token.

    A kind of token without a price costs nothing. Only cached ones then cost as other prompt tokens.
    """
    prompt, output = prices.per_million_prompt_tokens, prices.per_million_output_tokens
    cached = (
        prompt if prices.per_million_cached_tokens is None else prices.per_million_cached_tokens
    )
    if prompt is None and cached is None and output is None:
        return None
    computed = usage.prompt_tokens - usage.cached_tokens
    amounts = ((computed, prompt), (usage.cached_tokens, cached), (usage.output_tokens, output))
    free = Decimal(0)
    return sum((tokens * (price or free) for tokens, price in amounts), free) / MILLION
