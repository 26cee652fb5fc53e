"""Prices of a service's tokens, in the currency of the platform."""

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a service for showback. None: not priced.

    per_million_cached_tokens: of the prompt's tokens that came from a cache; None: as other prompt tokens.
    """

    per_million_prompt_tokens: Decimal | None = None
    per_million_cached_tokens: Decimal | None = None
    per_million_output_tokens: Decimal | None = None
