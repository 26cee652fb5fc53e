"""Turns of tenants: the one with the lowest virtual time is first."""

from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from itertools import count


class Turns:
    """Tenants by virtual time, those that joined first before others with the same time.

    virtual_time: returns that of a tenant, which only grows: so an entry is compared anew when it is first.
    """

    def __init__(self, virtual_time: Callable[[str], float]) -> None:
        self._virtual_time = virtual_time
        self._entries: list[tuple[float, int, str]] = []  # heap
        self._tenants: set[str] = set()
        self._passed: list[tuple[float, int, str]] = []
        self._serials = count()

    def add(self, tenant: str) -> None:
        """Add a tenant, unless it is there."""
        if tenant not in self._tenants:
            self._tenants.add(tenant)
            heappush(self._entries, (self._virtual_time(tenant), next(self._serials), tenant))

    def first(self) -> tuple[float, str] | None:
        """The first tenant after its virtual time; None if there is none, or all were passed."""
        while self._entries:
            time, serial, tenant = self._entries[0]
            if (current := self._virtual_time(tenant)) <= time:
                return time, tenant
            heapreplace(self._entries, (current, serial, tenant))
        return None

    def remove_first(self) -> None:
        """Remove the first tenant."""
        self._tenants.remove(heappop(self._entries)[2])

    def pass_first(self) -> None:
        """Leave the first tenant out until `restore`."""
        self._passed.append(heappop(self._entries))

    def restore(self) -> None:
        """Put the tenants back that were passed."""
        while self._passed:
            heappush(self._entries, self._passed.pop())
