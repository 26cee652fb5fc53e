"""Limits of the gateway that services share, so that none takes a whole limit from all others.

    limit                               beyond the share of a service, its namespace, or arriving requests
    client connections with a request   503; an arriving request replaces another one, which gets a 408
    memory of bodies                    503; an arriving request replaces another one, which gets a 408
    memory of answers that are held     further answers are passed on as they arrive
    number of copies for mirrors        further copies are dropped
    memory of copies for mirrors        further copies are dropped
    adapters with series of their own   further adapters are counted as `other`

A share is the most that an owner may hold; an allocation is what one request or copy holds. Requests are
arriving until their service is known, which their body names (`request_allocation.py`). What services do not
share needs no rule: each has its own queues (`max_waiting`) and retries, and each engine its own loads of
adapters. Connections without a request make room for new ones (`connection_limit.py`). Probes, metrics and
the operator have connections of their own (`http/servers.py`).
"""

from functools import lru_cache

from penstock_engine.http.fair_limit import FairLimit

# Fraction that a service may hold of what the other services of its namespace leave of the namespace's. It is
# large because they have one owner, and not 1 because one whose engines hang must not stop the others.
SERVICE_FRACTION = 0.875
# The owner of requests whose service is not known yet. All of these together count as one namespace, because
# a client may have any number of addresses.
ARRIVING = ""


class SharedLimit:
    """A limit on what all owners hold together. An owner is a service "namespace/name", or ARRIVING.

    A namespace may hold half of what the others leave (FairLimit), and a service SERVICE_FRACTION of what the
    others of its namespace leave of that. While n namespaces hold something, an owner in none of them is
    never refused an amount that fits into the limit 2 ** (n + 2) times.
    """

    def __init__(self, limit: int) -> None:
        self._namespaces = FairLimit(limit)
        self._held_by: dict[str, int] = {}

    @property
    def held(self) -> int:
        """The amount that all owners hold together."""
        return self._namespaces.held

    def bound(self, owner: str) -> int:
        """Return the most that the owner may hold now."""
        namespace = _namespace_of(owner)
        bound = self._namespaces.bound(namespace)
        if owner == namespace:
            return bound
        siblings = self._namespaces.held_by(namespace) - self._held_by.get(owner, 0)
        left = bound - siblings
        return min(left, max(1, int(SERVICE_FRACTION * left)))

    def shortage(self, owner: str, amount: int) -> int:
        """Return how much the owner would have to give back to hold this much more; 0 if nothing."""
        return max(0, self._held_by.get(owner, 0) + amount - self.bound(owner))

    def take(self, owner: str, amount: int) -> bool:
        """Let the owner hold this much more. Returns False, and changes nothing, if it may not."""
        if not amount:
            return True
        if self.shortage(owner, amount):
            return False
        self.add(owner, amount)
        return True

    def give_back(self, owner: str, amount: int) -> None:
        """Undo `take`."""
        self.add(owner, -amount)

    def add(self, owner: str, amount: int) -> None:
        """Let the owner hold this much more, or less if negative, whatever it may hold."""
        if not amount:
            return
        self._namespaces.add(_namespace_of(owner), amount)
        if held := self._held_by.get(owner, 0) + amount:
            self._held_by[owner] = held
        else:
            self._held_by.pop(owner, None)


class Allocation:
    """The amount of a limit that one request or copy holds. It counts for an owner."""

    def __init__(self, limit: SharedLimit, owner: str) -> None:
        self._limit = limit
        self._owner = owner
        self.amount = 0

    def take(self, amount: int) -> bool:
        """Hold this much more. Returns False, and changes nothing, if the owner may not."""
        is_taken = self._limit.take(self._owner, amount)
        self.amount += amount * is_taken
        return is_taken

    def add(self, amount: int) -> None:
        """Hold this much more, whatever the owner may hold."""
        self._limit.add(self._owner, amount)
        self.amount += amount

    def resize(self, amount: int) -> bool:
        """Hold this much in all. Returns False, and changes nothing, if the owner may not hold more."""
        if amount > self.amount:
            return self.take(amount - self.amount)
        self._limit.give_back(self._owner, self.amount - amount)
        self.amount = amount
        return True

    def assign(self, owner: str) -> bool:
        """Count for another owner. Returns False, and holds nothing any more, if that one may not."""
        amount = self.amount
        self.release()
        self._owner = owner
        return self.take(amount)

    def release(self) -> None:
        """Give all back. Further calls change nothing."""
        self._limit.give_back(self._owner, self.amount)
        self.amount = 0


@lru_cache(maxsize=4096)  # a request asks 16 times
def _namespace_of(owner: str) -> str:
    return owner.partition("/")[0]
