"""A gateway's slots of the requests that a tenant may have running at a time, over all gateways."""

from dataclasses import dataclass

from penstock.core.tenants.lease import Demand


@dataclass(slots=True)
class SlotLease:
    """Slots that a gateway holds of a tenant's. bound: of all gateways together.

    held: as the store has it, once it has answered. num_running: requests that have a slot. total: slots that
    all gateways hold, by the store's last count.
    """

    bound: int
    held: int = 0
    num_running: int = 0
    total: int = 0
    num_waiting: int = 0  # requests that wait for a slot

    def has_room(self, num_gateways: int | None) -> bool:
        """Whether a request may run. num_gateways: that share the slots while the store is down."""
        room = self.held if num_gateways is None else self.bound // num_gateways
        return self.num_running < room

    @property
    def is_full(self) -> bool:
        """Whether the store had no further slot when it counted."""
        return self.total >= self.bound

    def start(self) -> None:
        """Count a request that has a slot."""
        self.num_running += 1

    def end(self) -> None:
        """Free the slot of a request."""
        self.num_running -= 1

    @property
    def is_to_report(self) -> bool:
        """Whether the store has to know of a change: a request waits, or slots are not needed."""
        return self.num_waiting > 0 or self.held != self._needed

    def demand(self) -> Demand:
        """Give up slots that are not needed, and return what to take."""
        self.held = self._needed
        return Demand(1, self.num_waiting, self.num_waiting)

    @property
    def _needed(self) -> int:
        """Slots in use, and half as many again, which the next requests find without asking the store."""
        spare = (self.num_running + 1) // 2
        return max(self.num_running, min(self.held, self.num_running + spare))

    def take(self, granted: int, total: int) -> None:
        """Add what the store has granted. total: slots of all gateways with it."""
        self.held += granted
        self.total = total
