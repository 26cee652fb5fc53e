"""Betting test of the canary's error rate against its control's.

If the canary is no worse, its expected part of all errors in a block equals its part of the requests. A
bet on a larger part multiplies the stake by (part under the bet / part of the requests) for each error of
the canary and by the ratio of the complements for each error of the control. This is a martingale at any
error rate, even a changing one, as long as it changes for both sides (conditional test of two
proportions). Clustered errors count for less: bets are tempered by the dispersion.

Errors are rare, so ten minutes of the control say little about stable's error rate. Stable's last hour is
added in slices to the control of the first blocks, as long as the control's error rate agrees with it. A
slice has the mean error rate of that hour: the geometric mean of the bets over all orders of the hour's
requests does not exceed their arithmetic mean, so the test stays valid.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

from penstock.core.canary.counts import Counts
from penstock.core.canary.estimate import MAX_LOG
from penstock.core.canary.evidence import NO_HISTORY, History
from penstock.core.canary.proportions import EMPTY, ProportionEstimate, ProportionStatistics

# Increases of the error rate that are bet on, in multiples of the tolerance, and the stake of each.
MULTIPLES = (0.5, 1.0, 2.0, 5.0, 15.0)
STAKES = (0.05, 0.15, 0.55, 0.2, 0.05)
# Size of the slice of history that is added to one block, in multiples of the control's requests.
SLICES = 5.0
# Prior of the control's error rate: half an error in this many requests.
PRIOR_REQUESTS = 100


@dataclass(frozen=True, slots=True)
class Errors:
    """State of the error test. Field names are stored.

    tolerance: largest accepted increase of the error rate. unspent: requests of history not used yet.
    tally: errors among requests of both sides. won: log of the wealth of each bet, tested against the
    control alone; won_aided: against the control and slices of history.
    """

    tolerance: float
    history: History = NO_HISTORY
    unspent: float = 0.0
    tally: ProportionStatistics = EMPTY
    won: tuple[float, ...] = (0.0,) * len(MULTIPLES)
    won_aided: tuple[float, ...] = (0.0,) * len(MULTIPLES)

    @classmethod
    def with_history(cls, tolerance: float, history: History) -> Self:
        """A new test with stable's baseline error counts."""
        return cls(tolerance, history, unspent=float(history.requests))

    def add(self, length_s: float, canary: Counts, control: Counts) -> Self:
        """Add the errors among requests of one block, which needs requests on both sides."""
        slice_requests = min(self.unspent, SLICES * control.requests)
        slice_errors = slice_requests * self.history.error_share
        aided_requests = control.requests + slice_requests
        aided_errors = control.events + slice_errors
        return replace(
            self,
            unspent=self.unspent - slice_requests,
            tally=self.tally.add(length_s, canary, control),
            won=self._bet(self.won, canary, control.requests, control.events),
            won_aided=self._bet(self.won_aided, canary, aided_requests, aided_errors),
        )

    def _bet(
        self, won: tuple[float, ...], canary: Counts, others: float, their_errors: float
    ) -> tuple[float, ...]:
        """Log wealth after a block. The bets are fixed by the control's error rate before this block."""
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
        """Whether the control's error rate agrees with history; in a shared outage it does not."""
        if not self.history.requests:
            return False
        control = self.tally.control
        expected = control.requests * (self.history.errors + 1) / self.history.requests
        return control.events <= expected + 2.5 * math.sqrt(expected) + 2

    @property
    def base_share(self) -> float:
        """The control's error rate, with history if that agrees; never 0."""
        errors, requests = self.tally.control.events, self.tally.control.requests
        if self.is_like_history:
            errors, requests = errors + self.history.errors, requests + self.history.requests
        return (errors + 0.5) / (requests + PRIOR_REQUESTS)

    def e_value(self) -> float:
        """E-value against "the canary does not fail more often"."""
        won = self.won_aided if self.is_like_history else self.won
        temper = self.tally.dispersion
        return sum(
            stake * math.exp(min(MAX_LOG, log / temper))
            for stake, log in zip(STAKES, won, strict=True)
        )

    def is_within(self, alpha: float) -> bool:
        """Whether the increase is shown to be below the tolerance, at any time, at level alpha."""
        return self.tally.is_below(self.tolerance, self.base_share, alpha)

    def is_within_at_timeout(self) -> bool:
        """Whether the increase is below the tolerance in the final analysis."""
        return self.tally.timeout_bound() < self.tolerance

    def reading(self, alpha: float) -> ProportionEstimate:
        """The estimated increase of the error rate with its upper bound."""
        return self.tally.reading(self.base_share, alpha)
