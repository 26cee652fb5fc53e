"""Limits of a ModelRoute's rule on what requests ask a model to generate."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.routing.apis import Api


@dataclass(frozen=True, slots=True)
class SamplingLimits:
    """Most that a request may ask for. None: there is no limit.

    output_tokens: for each choice. choices: for each prompt. top_logprobs: alternatives of each token.
    """

    output_tokens: int | None = None
    choices: int | None = None
    temperature: float | None = None
    top_logprobs: int | None = None

    def fields_to_set(self, api: Api, stated: Mapping[str, float]) -> dict[str, float]:
        """Return the lower numbers that replace those of a body above the limits, by field.

        stated: numbers in the body by their fields. Infinite: one that cannot be read. A negative one stands
        for all that there is, as in `"logprobs": -1`.
        """
        limits = {
            **dict.fromkeys((*api.output_bounds, "min_tokens"), self.output_tokens),
            **dict.fromkeys(("n", "best_of"), self.choices),
            "temperature": self.temperature,
            **dict.fromkeys(api.logprobs, self.top_logprobs),
        }
        fields: dict[str, float] = {
            name: limit
            for name, limit in limits.items()
            if limit is not None and name in stated and not 0 <= stated[name] <= limit
        }
        limit, usual = self.output_tokens, api.default_output_tokens
        if limit is not None and api.output_bounds and stated.keys().isdisjoint(api.output_bounds):
            fields[api.output_bounds[0]] = limit if usual is None else min(usual, limit)
        return fields
