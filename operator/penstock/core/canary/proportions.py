"""Compares the shares of requests with an event (error, missed objective) on both sides."""

import math
from dataclasses import dataclass

from penstock.core.canary.counts import NONE, Counts
from penstock.core.canary.dispersion import NO_DISPERSION, Dispersion
from penstock.core.canary.estimate import MAX_LOG

# Length of an interval of the dispersion estimate; shorter ones hide the effect of queues.
INTERVAL_S = 30.0
# Shares that `is_below` bets on, as fractions of the tested bound.
FRACTIONS = (0.1, 0.25, 0.5, 0.75)


@dataclass(frozen=True, slots=True)
class ProportionEstimate:
    """Estimated difference of two shares.

    difference: canary's share minus the control's. high: its upper bound, which holds at all times with
    probability 1 - alpha.
    """

    difference: float
    high: float
    canary: Counts
    control: Counts


@dataclass(frozen=True, slots=True)
class ProportionStatistics:
    """Sufficient statistics of two proportions. Field names are stored.

    canary, control: totals. open_*: the unfinished interval. spread: differences of finished intervals.
    """

    canary: Counts = NONE
    control: Counts = NONE
    open_s: float = 0.0
    open_canary: Counts = NONE
    open_control: Counts = NONE
    spread: Dispersion = NO_DISPERSION

    def add(self, length_s: float, canary: Counts, control: Counts) -> "ProportionStatistics":
        """Add the events of one block, which needs requests on both sides."""
        open_canary, open_control = self.open_canary.add(canary), self.open_control.add(control)
        all_canary, all_control = self.canary.add(canary), self.control.add(control)
        open_s = self.open_s + length_s
        if open_s < INTERVAL_S:
            return ProportionStatistics(
                all_canary, all_control, open_s, open_canary, open_control, self.spread
            )
        weight = 1 / (1 / open_canary.requests + 1 / open_control.requests)
        spread = self.spread.add(weight, open_canary.share - open_control.share)
        return ProportionStatistics(all_canary, all_control, spread=spread)

    @property
    def dispersion(self) -> float:
        """Variance inflation of the differences over independent requests, >= 1."""
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
        """Whether a share of the canary of at least `base` + `difference` is rejected at alpha.

        A Poisson likelihood ratio against a mixture of smaller shares, tempered by the dispersion.
        """
        bound = base + difference
        n, k, temper = self.canary.requests, self.canary.events, self.dispersion
        evidence = sum(
            math.exp(min(MAX_LOG, (k * math.log(part) + (1 - part) * bound * n) / temper))
            for part in FRACTIONS
        )
        return evidence / len(FRACTIONS) >= 1 / alpha

    def timeout_bound(self) -> float:
        """Upper bound of the canary's share minus the control's in the final analysis."""
        difference = self._cautious.share - self.control.share
        return difference + self.spread.timeout_margin(self.least_variance)

    @property
    def least_variance(self) -> float:
        """Variance of the canary's share if its requests are independent."""
        share = self._cautious.share
        return share * (1 - share) / self._cautious.requests

    @property
    def _cautious(self) -> Counts:
        """The canary's counts plus two events and two non-events (Agresti and Coull 1998).

        Without them, a few requests without an event would prove a share of 0.
        """
        return self.canary.add(Counts(4, 2))

    def reading(self, base: float, alpha: float) -> ProportionEstimate:
        """The difference with its upper bound. base: the control's share, as in `is_below`."""
        low, high = 0.0, 1.0
        for _ in range(20):  # bisection to 1e-6
            middle = (low + high) / 2
            is_below = self.is_below(middle, base, alpha)
            low, high = (low, middle) if is_below else (middle, high)
        return ProportionEstimate(
            self.canary.share - self.control.share, high, self.canary, self.control
        )


EMPTY = ProportionStatistics()
