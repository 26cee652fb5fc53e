"""A gateway's piece of a limit that several gateways share.

The shared store counts a piece as used when the gateway takes it, so gateways together never admit more than
the limit. A gateway serves requests from its piece without asking the store, takes more before the piece is
used up, and gives back what it does not need. While the store is down it has its share of what was left.
"""

from dataclasses import dataclass, field
from math import ceil

from penstock.core.tenants.limits import Window, window_at
from penstock.core.tenants.tenant import UsageLimit

# Seconds of use that a piece lasts for. A call of the store takes 0.25 ms of processor, so four in a second
# cost 0.1% of a core; a gateway that dies takes half a second of its use with it.
PIECE_S = 0.5
# Weight of the last interval in the estimate of the rate of use: it follows a change within a few intervals.
RATE_WEIGHT = 0.5
# Rate of use, per second, below which a gateway keeps nothing ahead.
MIN_RATE = 0.1
# Shortest interval that the rate is measured over. Requests come in bursts.
MIN_RATE_INTERVAL_S = 0.1
# Time for which the store's count is taken for the present one when a request finds too little left. So a
# client far over its limit costs ten calls in a second, and amounts that are given back are found that late.
COUNT_AGE_S = 0.1
# Longest time for which the use of all gateways is taken to have gone on after the last count of a store that
# went down: the time between two calls, and that of a call.
MAX_UNCOUNTED_S = 1.0


@dataclass(frozen=True, slots=True)
class Demand:
    """Amounts that a gateway wants of a limit.

    least: of one request that waits; less is of no use. waiting: of all that wait. wanted: with what the next
    requests will need; only a part of what is left is given for those. 0: nothing.
    """

    least: int
    waiting: int
    wanted: int


NO_DEMAND = Demand(least=1, waiting=0, wanted=0)


@dataclass(slots=True)
class Lease:
    """A gateway's piece of one limit in one window."""

    limit: UsageLimit
    window: Window
    granted: int = 0  # taken from the store
    used: int = 0  # by requests of this gateway
    share: int = 0  # of what was left when the store went down, beside the piece
    is_local: bool = False  # whether it has a share
    total: int = 0  # that all gateways have taken, by the store's last count
    counted_s: float = float("-inf")  # when the store counted
    growth: float = 0.0  # of the total, per second
    noted_s: float = float("-inf")  # when the store counted that, for whichever gateway
    needs: list[int] = field(default_factory=list)  # of requests that wait for more
    stored: int | None = 0  # what the store has of `granted`; None: a call of it has failed
    # Gateways that share the limit because the store cannot count it; None: it can
    num_unstored: int | None = None
    rate: float = 0.0  # of use, per second
    _measured_s: float = float("-inf")
    _num_reserved: int = 0  # since then
    # The store's count when the share began, and the share that it began with
    _total_before: int = 0
    _whole_share: int = 0

    @classmethod
    def of(cls, limit: UsageLimit, now_s: float) -> "Lease":
        """Start a lease without a piece."""
        return cls(limit, window_at(limit.unit, now_s))

    @property
    def available(self) -> int:
        """The amount that requests may still use here."""
        return self.granted + self.share - self.used

    @property
    def remaining(self) -> int:
        """The rest of the limit, as far as this gateway knows."""
        elsewhere = 0 if self.is_local else self.limit.limit - self.total
        return max(0, min(self.limit.limit, elsewhere + self.available))

    @property
    def used_ratio(self) -> float:
        """The part of the limit that is used; without the store, of this gateway's share."""
        if self.is_local:
            whole = self.granted + self.share
            return min(1.0, self.used / whole) if whole > 0 else 1.0
        return min(1.0, self.total / self.limit.limit)

    def enter(self, now_s: float) -> None:
        """Go on to the window of a time. What is left of a piece ends with its window."""
        if now_s < self.window.end_s:
            return
        self.window = window_at(self.limit.unit, now_s)
        self.granted = self.used = self.share = self.total = self.stored = 0
        self.is_local, self.growth = False, 0.0
        self.counted_s = self.noted_s = float("-inf")

    def reserve(self, amount: int) -> None:
        """Use an amount of the piece."""
        self.used += amount
        self._num_reserved += amount

    def settle(self, window: Window, difference: int) -> None:
        """Add the difference of what a request used to what it had reserved in a window.

        After that window's end a negative one is dropped, and a positive one counts for the present window.
        """
        if window == self.window or difference > 0:
            self.used += difference

    def is_exhausted(self, amount: int, now_s: float) -> bool:
        """Whether a count of the store, not older than COUNT_AGE_S, shows that too little is left."""
        is_fresh = now_s < self.counted_s + COUNT_AGE_S
        return is_fresh and amount > self.available + self.limit.limit - self.total

    @property
    def is_low(self) -> bool:
        """Whether it is time to take more, before requests have to wait for it."""
        is_left = self.total < self.limit.limit
        return is_left and self.available < self.rate * PIECE_S / 2

    def demand(self, now_s: float) -> Demand | None:
        """Return what to take from the store now; None: nothing. Measures the rate of use."""
        self._measure(now_s)
        waiting, ahead = sum(self.needs), ceil(self.rate * PIECE_S)
        if not self.needs and not self.is_low:
            return None
        return Demand(
            least=max(1, min(self.needs, default=1) - self.available),
            waiting=max(0, waiting - self.available),
            wanted=max(1, waiting + ahead - self.available),
        )

    def _measure(self, now_s: float) -> None:
        elapsed_s = now_s - self._measured_s
        if elapsed_s < MIN_RATE_INTERVAL_S:
            return
        rate = self._num_reserved / elapsed_s
        self.rate += RATE_WEIGHT * (rate - self.rate)
        if self.rate < MIN_RATE:
            self.rate = 0.0
        self._measured_s, self._num_reserved = now_s, 0

    def correction(self, *, gives_all: bool = False) -> int:
        """Adjust the piece to what was used of it. Returns the change.

        Positive: used beyond the piece. Negative: the part of the piece that is not needed, or all that is
        left of it (gives_all).
        """
        change = self.used - self.granted
        if change < 0 and not gives_all:
            kept, is_needed = ceil(self.rate * PIECE_S), self.is_local or bool(self.needs)
            change = 0 if is_needed or -change <= 2 * kept else change + kept
        self.granted += change
        self.total += change
        if self.is_local:
            self.share -= change
        return change

    @property
    def is_to_report(self) -> bool:
        """Whether the store has another piece of this gateway, as far as it knows."""
        return self.stored != self.granted or self.num_unstored is not None

    @property
    def is_idle(self) -> bool:
        """Whether it holds nothing, and the store has to hear of nothing."""
        is_used_up = self.granted == self.used and self.rate == 0 and not self.needs
        return is_used_up and not self.is_to_report

    def take(self, granted: int, total: int, now_s: float) -> None:
        """Add what the store has granted. total: the store's count with it."""
        self.granted += granted
        self.stored, self.num_unstored = self.granted, None
        self.total, self.counted_s = total, now_s

    def note_total(self, total: int, growth: float, counted_s: float) -> None:
        """Note a count of the store, which others may have changed. growth: per second."""
        if not self.is_local:
            self.total, self.growth, self.noted_s = max(self.total, total), growth, counted_s

    def follow(self, num_gateways: int | None, now_s: float) -> None:
        """Share the limit by the store (None), or with so many gateways while the store cannot count it."""
        if num_gateways is None:
            num_gateways = self.num_unstored
        if num_gateways is not None:
            self.go_local(num_gateways, now_s)
        elif self.is_local:
            self.go_shared()

    def go_local(self, num_gateways: int, now_s: float) -> None:
        """Get this gateway's share of what was left, while the store is down or there is none.

        It follows the number of gateways and the limit.
        """
        if not self.is_local:
            self.is_local, self.share = True, 0
            uncounted_s = min(MAX_UNCOUNTED_S, max(0.0, now_s - self.noted_s))
            self._total_before = self.total + ceil(self.growth * uncounted_s)
            self._whole_share = 0
        whole = max(0, self.limit.limit - self._total_before) // num_gateways
        self.share += whole - self._whole_share
        self._whole_share = whole

    def go_shared(self) -> None:
        """Give the share up: the store is back."""
        self.is_local, self.share = False, 0

    def check(self) -> None:
        """Raise AssertionError if the amounts contradict each other."""
        assert self.granted >= 0, "a negative piece"
        assert self.is_local or self.share == 0, "a share beside the store"
        assert self.window.start_s < self.window.end_s
