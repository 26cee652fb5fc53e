"""Distributions of prompt and output lengths, and the share of common prefixes."""

from math import log
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from penstock.core.admission.requester import Requester
from penstock.core.tenants.tenant import BATCH_PRIORITY, MAX_FAIR_SHARE_WEIGHT, MAX_PRIORITY
from penstock.sim.profile import Record


class Fixed(Record):
    """Constant length in tokens."""

    kind: Literal["fixed"] = "fixed"
    tokens: int = Field(ge=1)

    def draw(self, random: Random) -> int:
        return self.tokens


class LogNormal(Record):
    """Log-normal length. median, p99, max: tokens."""

    kind: Literal["lognormal"] = "lognormal"
    median: float = Field(ge=1)
    p99: float = Field(ge=1)
    max: int = Field(default=131_072, ge=1)

    def draw(self, random: Random) -> int:
        sigma = log(self.p99 / self.median) / 2.326  # the standard normal's 99th percentile
        return max(1, min(self.max, round(random.lognormvariate(log(self.median), sigma))))


Length = Annotated[Fixed | LogNormal, Field(discriminator="kind")]


class RequestClass(Record):
    """Class of requests. prefix_share: share of the prompt taken from one of prefix_groups prefixes.

    tenant, priority, fair_share_weight: whom they count for in admission.
    """

    prompt: Length
    output: Length
    weight: float = Field(default=1.0, gt=0)
    prefix_share: float = Field(default=0.0, ge=0, le=1)
    prefix_groups: int = Field(default=8, ge=1)
    tenant: str = ""
    priority: int = Field(default=0, ge=BATCH_PRIORITY, le=MAX_PRIORITY)
    fair_share_weight: int = Field(default=1, ge=1, le=MAX_FAIR_SHARE_WEIGHT)

    @property
    def requester(self) -> Requester:
        """Whom the requests count for in admission."""
        return Requester(self.tenant, self.priority, self.fair_share_weight)


class Mix(Record):
    """Mix of request classes, valid from `from_s` on."""

    from_s: float = Field(default=0.0, ge=0)
    classes: tuple[RequestClass, ...] = Field(min_length=1)

    def draw(self, random: Random) -> RequestClass:
        weights = [c.weight for c in self.classes]
        return self.classes[0] if len(weights) == 1 else random.choices(self.classes, weights)[0]
