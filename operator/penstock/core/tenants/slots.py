"""A gateway's slots of the requests that a tenant may have running at a time, over all gateways."""

from dataclasses import dataclass

from penstock.core.tenants.lease import Demand

# Time for which a gateway keeps as many slots as it had in use, s, while others find enough. A slot that is
# taken anew costs its request a call of the store, and a tenant's requests come and go within milliseconds.
KEEP_S = 1.0


@dataclass(slots=True)
class SlotLease:
    """Slots that a gateway holds of a tenant's."""

    bound: int  # of all gateways together
    held: int = 0  # as the store has it, once it has answered
    num_running: int = 0  # requests that have a slot
    total: int = 0  # that all gateways hold, by the store's last count
    num_waiting: int = 0  # requests that wait for a slot
    # The most that had a slot at a time in this interval of KEEP_S, and in the one before
    _most: int = 0
    _most_before: int = 0
    _interval_s: float = float("-inf")  # when this interval began
    # Gateways that share the slots because the store cannot count them; None: it can
    num_unstored: int | None = None
    _room_before: int | None = (
        None  # slots held and a share of the free ones when the store went down
    )

    def has_room(self, num_gateways: int | None, *, is_recent: bool = False) -> bool:
        """Whether a request may run.

        num_gateways: that share the slots while the store is down. is_recent: whether the requests that were
        running when it went down still may be.
        """
        if num_gateways is None:
            num_gateways = self.num_unstored
        if num_gateways is None:
            self._room_before = None
            return self.num_running < self.held
        if self._room_before is None:
            self._room_before = self.held + max(0, self.bound - self.total) // num_gateways
        room = self.bound // num_gateways
        return self.num_running < (min(room, self._room_before) if is_recent else room)

    def note_total(self, total: int) -> None:
        """Note a count of the store while this gateway holds none."""
        if not self.held:
            self.total = total

    @property
    def is_full(self) -> bool:
        """Whether the store had no further slot when it counted."""
        return self.total >= self.bound

    def start(self) -> None:
        """Count a request that has a slot."""
        self.num_running += 1
        self._most = max(self._most, self.num_running)

    def end(self) -> None:
        """Free the slot of a request."""
        self.num_running -= 1

    @property
    def is_to_report(self) -> bool:
        """Whether the store has to know of a change: a request waits, or slots are not needed."""
        is_other = self.held != self._needed or self.num_unstored is not None
        return self.num_waiting > 0 or is_other

    def demand(self, now_s: float) -> Demand:
        """Give up slots that are not needed, and return what to take."""
        if now_s >= self._interval_s + KEEP_S:
            self._most_before, self._most = self._most, self.num_running
            self._interval_s = now_s
        self.held = self._needed
        return Demand(1, self.num_waiting, self.num_waiting)

    @property
    def _needed(self) -> int:
        """Slots in use, and half as many again, which the next requests find without asking the store.

        While all gateways hold at most half of the bound, as many as were in use lately, if these are more.
        """
        kept = self.num_running + (self.num_running + 1) // 2
        if self.total <= self.bound // 2:
            kept = max(kept, self._most, self._most_before)
        return max(self.num_running, min(self.held, kept))

    def take(self, granted: int, total: int) -> None:
        """Add what the store has granted. total: slots of all gateways with it."""
        self.held += granted
        self.total, self.num_unstored = total, None
