"""Betting test of the canary's share of missed objectives against its control's.

Misses are clustered: one long prompt delays a minute of requests. So each bet is on the difference of the
shares in an interval of 30 s, clipped to a bounded range: it wins or loses once per interval, however many
requests missed. The product of (1 + bet * difference) is a martingale while the mean difference is 0
(Waudby-Smith and Ramdas 2024).
"""

from dataclasses import dataclass, replace
from typing import Self

from penstock.core.canary.bins import Binned
from penstock.core.canary.counts import Counts
from penstock.core.canary.proportions import EMPTY, ProportionEstimate, ProportionStatistics
from penstock.core.canary.shift import QUEUE_LENGTHS, Shift

# Bets per interval. bet * difference is clipped to +-LARGEST_LOSS, so no bet loses all of its wealth.
BETS = (0.5, 1.0, 2.0, 4.0)
LARGEST_LOSS = 0.8
# Least number of intervals before acceptance: the dispersion of misses must be known.
MIN_INTERVALS = 10
NO_ANSWERS = Shift(assumed=0.0)


@dataclass(frozen=True, slots=True)
class Violations:
    """State of the test. Field names are stored.

    tolerance: largest accepted increase of the share. tally: misses among requests of both sides. won:
    wealth of each bet, which starts at 1. at_equal_load: difference of misses at equal queue length.
    """

    tolerance: float
    tally: ProportionStatistics = EMPTY
    won: tuple[float, ...] = (1.0,) * len(BETS)
    at_equal_load: Shift = NO_ANSWERS

    def add(
        self,
        length_s: float,
        canary: Counts,
        control: Counts,
        canary_missed: Binned,
        control_missed: Binned,
    ) -> Self:
        """Add the misses of one block, which needs requests on both sides.

        canary, control: of all requests. *_missed: of answers, by queue_bin.
        """
        tally = self.tally.add(length_s, canary, control)
        at_equal_load = self.at_equal_load.add(
            length_s, canary_missed, control_missed, QUEUE_LENGTHS
        )
        if tally.spread.n == self.tally.spread.n:
            return replace(self, tally=tally, at_equal_load=at_equal_load)
        interval = self.tally.open_canary.add(canary), self.tally.open_control.add(control)
        difference = interval[0].share - interval[1].share
        won = (
            before * (1 + max(-LARGEST_LOSS, min(LARGEST_LOSS, bet * difference)))
            for before, bet in zip(self.won, BETS, strict=True)
        )
        return replace(self, tally=tally, won=tuple(won), at_equal_load=at_equal_load)

    def e_value(self) -> float:
        """E-value against "the canary does not miss its objectives more often"."""
        return sum(self.won) / len(self.won)

    def is_within(self, alpha: float) -> bool:
        """Whether the increase is shown to be below the tolerance, at any time, at level alpha."""
        if self.tally.spread.n < MIN_INTERVALS:
            return False
        return self.tally.is_below(self.tolerance, self._base_share, alpha)

    def is_within_at_timeout(self) -> bool:
        """Whether the increase is below the tolerance in the final analysis, at equal queue length.

        Half of the variance of an hour's misses comes from different queues; TTFT with queues tests those.
        """
        return self.at_equal_load.timeout_bound(self.tally.least_variance) < self.tolerance

    def reading(self, alpha: float) -> ProportionEstimate:
        """The estimated increase of the share of misses with its upper bound."""
        return self.tally.reading(self._base_share, alpha)

    @property
    def _base_share(self) -> float:
        control = self.tally.control
        return (control.events + 0.5) / (control.requests + 100)
