"""Events among requests on both sides: how many, how much they heap up, how many more they may be."""

import math
from dataclasses import dataclass

from penstock.core.canary.counts import NONE, Counts
from penstock.core.canary.dispersion import UNDISPERSED, Dispersion
from penstock.core.canary.estimate import MAX_LOG

# Shorter spans hide what a queue does.
INTERVAL_S = 30.0
# The part of the bound that "within tolerance" is betted on.
FRACTIONS = (0.1, 0.25, 0.5, 0.75)


@dataclass(frozen=True, slots=True)
class TallyReading:
    """difference, high: canary's share less the control's; high holds at all times but for a chance
    alpha."""

    difference: float
    high: float
    canary: Counts
    control: Counts


@dataclass(frozen=True, slots=True)
class Tally:
    """open_*: the interval that is being gathered."""

    canary: Counts = NONE
    control: Counts = NONE
    open_s: float = 0.0
    open_canary: Counts = NONE
    open_control: Counts = NONE
    spread: Dispersion = UNDISPERSED

    def add(self, length_s: float, canary: Counts, control: Counts) -> "Tally":
        """canary, control: of one block, requests on both sides."""
        open_canary, open_control = self.open_canary.add(canary), self.open_control.add(control)
        all_canary, all_control = self.canary.add(canary), self.control.add(control)
        open_s = self.open_s + length_s
        if open_s < INTERVAL_S:
            return Tally(all_canary, all_control, open_s, open_canary, open_control, self.spread)
        weight = 1 / (1 / open_canary.requests + 1 / open_control.requests)
        spread = self.spread.add(weight, open_canary.share - open_control.share)
        return Tally(all_canary, all_control, spread=spread)

    @property
    def dispersion(self) -> float:
        """>= 1: how much more the differences vary than those of independent requests would."""
        canary, control = self.canary, self.control
        both = canary.add(control)
        if not both.events or not self.spread.n:
            return 1.0
        canary_share = (canary.events + 10 * both.share) / (canary.requests + 10)
        variance = (
            canary_share * (1 - canary_share) * control.requests
            + both.share * (1 - both.share) * canary.requests
        ) / both.requests
        events_per_interval = canary_share * canary.requests / self.spread.n
        return self.spread.factor(variance, 1 / events_per_interval)

    def is_below(self, difference: float, base: float, alpha: float) -> bool:
        """Whether "the canary's share is at least `base` + `difference`" is refuted at alpha.

        A Poisson likelihood ratio against a mixture of smaller shares, tempered by the dispersion.
        """
        bound = base + difference
        n, k, temper = self.canary.requests, self.canary.events, self.dispersion
        evidence = sum(
            math.exp(min(MAX_LOG, (k * math.log(part) + (1 - part) * bound * n) / temper))
            for part in FRACTIONS
        )
        return evidence / len(FRACTIONS) >= 1 / alpha

    def last_bound(self) -> float:
        """Of the canary's share less the control's, of one look at a time that was set before."""
        difference = self._cautious.share - self.control.share
        return difference + self.spread.last_margin(self.least_variance)

    @property
    def least_variance(self) -> float:
        """Of the canary's share, if its requests are independent."""
        share = self._cautious.share
        return share * (1 - share) / self._cautious.requests

    @property
    def _cautious(self) -> Counts:
        """With two events and two others more than the canary had (Agresti and Coull 1998), or none in a
        handful would show that there will be none."""
        return self.canary.add(Counts(4, 2))

    def reading(self, base: float, alpha: float) -> TallyReading:
        low, high = 0.0, 1.0
        for _ in range(20):  # halves to a millionth
            middle = (low + high) / 2
            is_below = self.is_below(middle, base, alpha)
            low, high = (low, middle) if is_below else (middle, high)
        return TallyReading(self.canary.share - self.control.share, high, self.canary, self.control)


EMPTY = Tally()
