"""Whether a larger share of the canary's requests fails, or misses its objectives: a betting test.

Of all the events in a block, the canary's part is its part of the requests, if it is no worse. A bet
on a larger part multiplies the stake by (canary's part under the bet / its part of the requests) for
each of its events and by the complement for each of the control's: a martingale, whatever the level
of errors is and however it moves, as long as it moves for both (conditional test of two proportions;
Turner, Ly, Gruenwald 2024). Events that come in heaps count for less: bets are tempered by the
dispersion of the counts.

Rare events say little about stable in ten minutes. Its last hour, spent in slices beside the first
blocks, says more, for as long as stable now agrees with it.
"""

import math
from dataclasses import dataclass, replace

from penstock.core.canary.dispersion import shrunk
from penstock.core.canary.estimate import MAX_LOG
from penstock.core.canary.evidence import NO_HISTORY, History

# Bets, as multiples of the tolerance that is added to the control's share, and their stakes.
MULTIPLES = (0.5, 1.0, 2.0, 5.0, 15.0)
STAKES = (0.1, 0.2, 0.4, 0.2, 0.1)
# The part of the bound that "within tolerance" is betted on.
FRACTIONS = (0.1, 0.25, 0.5, 0.75)
# Slices of history beside one block of the control, in multiples of its requests.
SLICES = 5.0
# Counts are dispersed by the minute: shorter spans hide what a queue of half a minute does.
BATCH_S = 60.0
MIN_BATCHES = 5


@dataclass(frozen=True, slots=True)
class Counts:
    """events of requests on one side. squares: sum over batches of events**2 / requests."""

    requests: int = 0
    events: int = 0
    squares: float = 0.0
    open_requests: int = 0
    open_events: int = 0

    def add(self, requests: int, events: int) -> "Counts":
        return replace(
            self,
            requests=self.requests + requests,
            events=self.events + events,
            open_requests=self.open_requests + requests,
            open_events=self.open_events + events,
        )

    def batched(self) -> "Counts":
        if not self.open_requests:
            return self
        square = self.open_events * self.open_events / self.open_requests
        return Counts(self.requests, self.events, self.squares + square)

    @property
    def share(self) -> float:
        return self.events / self.requests if self.requests else 0.0

    def chi_square(self) -> float:
        """Of finished batches, around their own share."""
        events, requests = self.events - self.open_events, self.requests - self.open_requests
        if not 0 < events < requests:
            return 0.0
        share = events / requests
        return (self.squares / share - events) / (1 - share)


@dataclass(frozen=True, slots=True)
class ShareReading:
    """difference and high: canary's share less the control's; high holds at all times but for a
    chance alpha."""

    difference: float
    high: float
    canary: Counts
    control: Counts


@dataclass(frozen=True, slots=True)
class Share:
    """won: log of what each bet made of its stake, tested beside the control alone; won_aided: beside
    the control and slices of history, of which unspent requests are left."""

    tolerance: float
    history: History = NO_HISTORY
    unspent: float = 0.0
    canary: Counts = Counts()
    control: Counts = Counts()
    won: tuple[float, ...] = (0.0,) * len(MULTIPLES)
    won_aided: tuple[float, ...] = (0.0,) * len(MULTIPLES)
    batches: int = 0
    batch_s: float = 0.0

    @classmethod
    def beside(cls, tolerance: float, history: History) -> "Share":
        return cls(tolerance, history, float(history.requests))

    def add(self, length_s: float, canary: tuple[int, int], control: tuple[int, int]) -> "Share":
        """canary, control: (requests, events) of one block."""
        unspent, won, won_aided = self.unspent, self.won, self.won_aided
        if canary[0] and control[0]:
            piece = min(unspent, SLICES * control[0])
            unspent -= piece
            won = self._bet(won, canary, control[0], control[1])
            past = piece * self.history.error_share
            won_aided = self._bet(won_aided, canary, control[0] + piece, control[1] + past)
        canary_counts, control_counts = self.canary.add(*canary), self.control.add(*control)
        batches, batch_s = self.batches, self.batch_s + length_s
        if batch_s >= BATCH_S and canary_counts.open_requests and control_counts.open_requests:
            canary_counts, control_counts = canary_counts.batched(), control_counts.batched()
            batches, batch_s = batches + 1, 0.0
        return Share(
            self.tolerance,
            self.history,
            unspent,
            canary_counts,
            control_counts,
            won,
            won_aided,
            batches,
            batch_s,
        )

    def _bet(
        self,
        won: tuple[float, ...],
        canary: tuple[int, int],
        others: float,
        their_events: float,
    ) -> tuple[float, ...]:
        """The alternative uses what was known before this block, or it would be no bet."""
        if not canary[1] and not their_events:
            return won
        base = self.base_share
        part = canary[0] / (canary[0] + others)
        result = []
        for before, multiple in zip(won, MULTIPLES, strict=True):
            ratio = min(1.0, base + multiple * self.tolerance) / base
            canary_log = math.log(ratio / (part * ratio + 1 - part))
            others_log = -math.log(part * ratio + 1 - part)
            result.append(before + canary[1] * canary_log + their_events * others_log)
        return tuple(result)

    @property
    def is_like_history(self) -> bool:
        """Whether stable fails now as often as it did: a shared outage is not the canary's."""
        if not self.history.requests:
            return False
        expected = self.control.requests * (self.history.errors + 1) / self.history.requests
        return self.control.events <= expected + 2.5 * math.sqrt(expected) + 2

    @property
    def base_share(self) -> float:
        """Of the control, with its history where that agrees; never 0: half an event of a hundred
        requests is added."""
        events, requests = float(self.control.events), float(self.control.requests)
        if self.is_like_history:
            events, requests = events + self.history.errors, requests + self.history.requests
        return (events + 0.5) / (requests + 100)

    @property
    def dispersion(self) -> float:
        """>= 1: how much more the counts of a minute vary than independent requests would."""
        degrees = 2 * (self.batches - 1)
        events = self.canary.events + self.control.events
        if self.batches < MIN_BATCHES or not events:
            return 1.0
        excess = (self.canary.chi_square() + self.control.chi_square()) / degrees - 1
        mean = events / (2 * self.batches)
        return 1 + shrunk(excess, (2 + 1 / mean) / degrees)

    def e_value(self) -> float:
        """Against "the canary's share is not larger"."""
        won = self.won_aided if self.is_like_history else self.won
        temper = self.dispersion
        return sum(
            stake * math.exp(min(MAX_LOG, log / temper))
            for stake, log in zip(STAKES, won, strict=True)
        )

    def is_below(self, difference: float, alpha: float) -> bool:
        """Whether "the canary's share exceeds the control's by `difference`" is refuted at alpha."""
        bound = self.base_share + difference
        n, k, temper = self.canary.requests, self.canary.events, self.dispersion
        evidence = sum(
            math.exp(min(MAX_LOG, (k * math.log(part) + (1 - part) * bound * n) / temper))
            for part in FRACTIONS
        )
        return evidence / len(FRACTIONS) >= 1 / alpha

    def reading(self, alpha: float) -> ShareReading:
        low, high = 0.0, 1.0
        for _ in range(20):  # halves to a millionth
            middle = (low + high) / 2
            low, high = (low, middle) if self.is_below(middle, alpha) else (middle, high)
        return ShareReading(self.canary.share - self.control.share, high, self.canary, self.control)
