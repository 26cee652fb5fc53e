"""Whether a larger share of the canary's requests fails: a betting test.

Of all the errors in a block, the canary's part is its part of the requests, if it is no worse. A bet
on a larger part multiplies the stake by (canary's part under the bet / its part of the requests) for
each of its errors and by the complement for each of the control's: a martingale, whatever the level
of errors is and however it moves, as long as it moves for both (the conditional test of two
proportions). Errors that come in heaps count for less: bets are tempered by their dispersion.

Rare events say little about stable in ten minutes. Its last hour, spent in slices beside the first
blocks, says more, for as long as stable now agrees with it. A slice counts with the mean of the
hour, and a geometric mean of bets over the orders of an hour is no more than their arithmetic mean.
"""

import math
from dataclasses import dataclass

from penstock.core.canary.counts import Counts
from penstock.core.canary.estimate import MAX_LOG
from penstock.core.canary.evidence import NO_HISTORY, History
from penstock.core.canary.tally import EMPTY, Tally, TallyReading

# Bets, as multiples of the tolerance that is added to the control's share, and their stakes.
MULTIPLES = (0.5, 1.0, 2.0, 5.0, 15.0)
STAKES = (0.05, 0.15, 0.55, 0.2, 0.05)
# Slices of history beside one block of the control, in multiples of its requests.
SLICES = 5.0
# A control with no error yet is taken for one with half an error in so many more requests.
PRIOR_REQUESTS = 100


@dataclass(frozen=True, slots=True)
class Errors:
    """won: log of what each bet made of its stake, tested beside the control alone; won_aided: beside
    the control and slices of history, of which unspent requests are left."""

    tolerance: float
    history: History = NO_HISTORY
    unspent: float = 0.0
    tally: Tally = EMPTY
    won: tuple[float, ...] = (0.0,) * len(MULTIPLES)
    won_aided: tuple[float, ...] = (0.0,) * len(MULTIPLES)

    @classmethod
    def beside(cls, tolerance: float, history: History) -> "Errors":
        return cls(tolerance, history, unspent=float(history.requests))

    def add(self, length_s: float, canary: Counts, control: Counts) -> "Errors":
        """canary, control: of one block, requests on both sides."""
        piece = min(self.unspent, SLICES * control.requests)
        past = piece * self.history.error_share
        return Errors(
            self.tolerance,
            self.history,
            self.unspent - piece,
            self.tally.add(length_s, canary, control),
            self._bet(self.won, canary, control.requests, control.events),
            self._bet(self.won_aided, canary, control.requests + piece, control.events + past),
        )

    def _bet(
        self, won: tuple[float, ...], canary: Counts, others: float, their_errors: float
    ) -> tuple[float, ...]:
        """Bets are made on what the control showed before this block, or they would be none."""
        if not canary.events and not their_errors:
            return won
        seen = self.tally.control
        base = (seen.events + 0.5) / (seen.requests + PRIOR_REQUESTS)
        part = canary.requests / (canary.requests + others)
        result = []
        for before, multiple in zip(won, MULTIPLES, strict=True):
            ratio = min(1.0, base + multiple * self.tolerance) / base
            loss = math.log(part * ratio + 1 - part)
            gain = math.log(ratio) - loss
            result.append(before + canary.events * gain - their_errors * loss)
        return tuple(result)

    @property
    def is_like_history(self) -> bool:
        """Whether stable fails now as often as it did: a shared outage is not the canary's."""
        if not self.history.requests:
            return False
        control = self.tally.control
        expected = control.requests * (self.history.errors + 1) / self.history.requests
        return control.events <= expected + 2.5 * math.sqrt(expected) + 2

    @property
    def base_share(self) -> float:
        """The control's share of errors, with its history where that agrees; never 0."""
        errors, requests = self.tally.control.events, self.tally.control.requests
        if self.is_like_history:
            errors, requests = errors + self.history.errors, requests + self.history.requests
        return (errors + 0.5) / (requests + PRIOR_REQUESTS)

    def e_value(self) -> float:
        """Against "the canary does not fail more often"."""
        won = self.won_aided if self.is_like_history else self.won
        temper = self.tally.dispersion
        return sum(
            stake * math.exp(min(MAX_LOG, log / temper))
            for stake, log in zip(STAKES, won, strict=True)
        )

    def is_within(self, alpha: float) -> bool:
        return self.tally.is_below(self.tolerance, self.base_share, alpha)

    def is_within_at_last(self) -> bool:
        return self.tally.last_bound() < self.tolerance

    def reading(self, alpha: float) -> TallyReading:
        return self.tally.reading(self.base_share, alpha)
