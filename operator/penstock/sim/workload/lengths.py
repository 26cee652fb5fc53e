"""How long prompts and outputs are, and what prompts share."""

from math import log
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from penstock.sim.profile import Record


class Fixed(Record):
    kind: Literal["fixed"] = "fixed"
    tokens: int = Field(ge=1)

    def draw(self, random: Random) -> int:
        return self.tokens


class LogNormal(Record):
    """median, p99: tokens."""

    kind: Literal["lognormal"] = "lognormal"
    median: float = Field(ge=1)
    p99: float = Field(ge=1)
    max: int = Field(default=131_072, ge=1)

    def draw(self, random: Random) -> int:
        sigma = log(self.p99 / self.median) / 2.326  # the standard normal's 99th percentile
        return max(1, min(self.max, round(random.lognormvariate(log(self.median), sigma))))


Length = Annotated[Fixed | LogNormal, Field(discriminator="kind")]


class RequestClass(Record):
    """prefix_share: of a prompt, what is one of prefix_groups common beginnings."""

    prompt: Length
    output: Length
    weight: float = Field(default=1.0, gt=0)
    prefix_share: float = Field(default=0.0, ge=0, le=1)
    prefix_groups: int = Field(default=8, ge=1)


class Mix(Record):
    """The classes of requests from `from_s` on."""

    from_s: float = Field(default=0.0, ge=0)
    classes: tuple[RequestClass, ...] = Field(min_length=1)

    def draw(self, random: Random) -> RequestClass:
        weights = [c.weight for c in self.classes]
        return self.classes[0] if len(weights) == 1 else random.choices(self.classes, weights)[0]
