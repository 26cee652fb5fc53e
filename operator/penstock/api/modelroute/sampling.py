"""Schema of the limits of a ModelRoute's rules on what requests ask a model to generate."""

from typing import Annotated

from penstock.api.schema.defaults import optional
from penstock.api.schema.rules import Model, Rule
from penstock.api.schema.scalars import MAX_DECIMAL_LENGTH, decimal

# More than any model's context.
MAX_TOKENS = 100_000_000


class SamplingLimits(Model):
    """Most that a request may ask for. Larger values are lowered before an engine gets the request."""

    RULES = (
        Rule(
            "has(self.maxOutputTokens) || has(self.maxChoices) || has(self.maxTemperature) || "
            "has(self.maxTopLogprobs)",
            lambda limits: any(value is not None for _, value in limits),
            "one of the limits must be set",
        ),
    )

    max_output_tokens: int | None = optional(
        "Most tokens of each choice. A request that names no number gets this one. Default: no limit.",
        ge=1,
        le=MAX_TOKENS,
    )
    max_choices: int | None = optional(
        "Most choices for each prompt, by `n` and `best_of`. Default: no limit.", ge=1, le=1024
    )
    max_temperature: Annotated[str, decimal(0, 2)] | None = optional(
        "Highest temperature, as a decimal number in quotes, such as '1.0'. Default: no limit.",
        max_length=MAX_DECIMAL_LENGTH,
    )
    max_top_logprobs: int | None = optional(
        "Most alternatives of each token whose probabilities a request may ask for. Default: no limit.",
        ge=0,
        le=1024,
    )
