"""Whether the canary misses its objectives more often: a betting test that survives queues.

Misses come in heaps: one long prompt holds up a minute of requests. So the bet is on the difference of
shares of half a minute, cut to a range that no heap leaves: it wins or loses once per interval,
however many requests are in the heap. The product of (1 + bet * difference) is a martingale while
the difference is 0 in the mean (Waudby-Smith and Ramdas 2024).
"""

from dataclasses import dataclass, replace

from penstock.core.canary.counts import Counts
from penstock.core.canary.evidence import Binned
from penstock.core.canary.shift import IN_LINE, Shift
from penstock.core.canary.tally import EMPTY, Tally, TallyReading

# A bet of b meets differences of at most 0.8 / b on either side, so it never loses all.
BETS = (0.5, 1.0, 2.0, 4.0)
LARGEST_LOSS = 0.8
# Before acceptance, how much misses heap up has to show.
MIN_INTERVALS = 10
UNSEEN = Shift(assumed=0.0)


@dataclass(frozen=True, slots=True)
class Violations:
    """won: what each bet made of a stake of 1. at_equal_load: of answers with as many requests ahead."""

    tolerance: float
    tally: Tally = EMPTY
    won: tuple[float, ...] = (1.0,) * len(BETS)
    at_equal_load: Shift = UNSEEN

    def add(
        self,
        length_s: float,
        canary: Counts,
        control: Counts,
        canary_missed: Binned,
        control_missed: Binned,
    ) -> "Violations":
        """canary, control: of one block, requests on both sides. *_missed: of its answers."""
        tally = self.tally.add(length_s, canary, control)
        at_equal_load = self.at_equal_load.add(length_s, canary_missed, control_missed, IN_LINE)
        if tally.spread.n == self.tally.spread.n:
            return replace(self, tally=tally, at_equal_load=at_equal_load)
        interval = self.tally.open_canary.add(canary), self.tally.open_control.add(control)
        difference = interval[0].share - interval[1].share
        won = (
            before * (1 + max(-LARGEST_LOSS, min(LARGEST_LOSS, bet * difference)))
            for before, bet in zip(self.won, BETS, strict=True)
        )
        return Violations(self.tolerance, tally, tuple(won), at_equal_load)

    def e_value(self) -> float:
        """Against "the canary does not miss its objectives more often"."""
        return sum(self.won) / len(self.won)

    def is_within(self, alpha: float) -> bool:
        if self.tally.spread.n < MIN_INTERVALS:
            return False
        return self.tally.is_below(self.tolerance, self._base_share, alpha)

    def is_within_at_last(self) -> bool:
        """At equal load: half of what an hour's misses vary by is whose pod stood in line longer, and
        that is left to TTFT with queues."""
        return self.at_equal_load.last_bound(self.tally.least_variance) < self.tolerance

    def reading(self, alpha: float) -> TallyReading:
        return self.tally.reading(self._base_share, alpha)

    @property
    def _base_share(self) -> float:
        control = self.tally.control
        return (control.events + 0.5) / (control.requests + 100)
