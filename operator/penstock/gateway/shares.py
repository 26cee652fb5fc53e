"""Shares of the gateway's limits: one rule, so that nobody takes a whole limit from all others.

    limit                               at the share of a service, of its namespace, or of arriving requests
    client connections with a request   503; for another arriving request, the slowest of these gets a 408
    memory of bodies                    503; for another arriving request, the slowest of these gets a 408
    memory of answers that are held     further answers are passed on as they arrive
    number of copies for mirrors        further copies are dropped
    memory of copies for mirrors        further copies are dropped
    adapters with series of their own   further adapters are counted as `other`

Requests are arriving until their service is known, which their body names (`request_shares.py`). What
services do not share needs no rule: each has its own queues (`max_waiting`) and retries, and each engine its
own loads of adapters. Connections without a request make room for new ones (`http_protocol.py`). Probes,
metrics and the operator have connections of their own (`http_servers.py`).
"""

# Fraction that a namespace may hold of what the other namespaces leave. One alone may hold a half, two may
# hold two thirds together, n may hold n/(n+1): the dynamic thresholds of Choudhury and Hahne (1998), with
# alpha 1.
NAMESPACE_FRACTION = 0.5
# Fraction that a service may hold of what the other services of its namespace leave of the namespace's. It is
# large because they have one owner, and not 1 because one whose engines hang must not stop the others.
SERVICE_FRACTION = 0.875
# The owner of requests whose service is not known yet. All of these together count as one namespace, because
# a client may have any number of addresses.
ARRIVING = ""


class SharedLimit:
    """A limit on what all owners hold together. An owner is a service "namespace/name", or ARRIVING.

    While n namespaces hold something, an owner in none of them is never refused an amount that fits into the
    limit 2 ** (n + 2) times.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[str, int] = {}  # by owner, and by namespace
        self.held = 0

    def bound(self, owner: str) -> int:
        """Return the most that the owner may hold now."""
        namespace = _namespace_of(owner)
        others = self.held - self._held_by(namespace)
        bound = _fraction(NAMESPACE_FRACTION, self._limit - others)
        if owner == namespace:
            return bound
        siblings = self._held_by(namespace) - self._held_by(owner)
        return _fraction(SERVICE_FRACTION, bound - siblings)

    def take(self, owner: str, amount: int) -> bool:
        """Let the owner hold this much more. Returns False, and changes nothing, if it may not."""
        if amount and self._held_by(owner) + amount > self.bound(owner):
            return False
        self._add(owner, amount)
        return True

    def give_back(self, owner: str, amount: int) -> None:
        """Undo `take`."""
        self._add(owner, -amount)

    def _held_by(self, owner: str) -> int:
        return self._held.get(owner, 0)

    def _add(self, owner: str, amount: int) -> None:
        self.held += amount
        for key in {owner, _namespace_of(owner)}:
            self._held[key] = self._held_by(key) + amount
            if not self._held[key]:
                del self._held[key]


class Share:
    """What one holder, such as a request, has of a limit. It counts for the holder's owner."""

    def __init__(self, limit: SharedLimit, owner: str) -> None:
        self._limit = limit
        self._owner = owner
        self.amount = 0

    def take(self, amount: int) -> bool:
        """Hold this much more. Returns False, and changes nothing, if the owner may not."""
        is_taken = self._limit.take(self._owner, amount)
        self.amount += amount * is_taken
        return is_taken

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


def _namespace_of(owner: str) -> str:
    return owner.partition("/")[0]


def _fraction(fraction: float, amount: int) -> int:
    """The fraction of what is left, at least 1 if there is something."""
    return min(amount, max(1, int(fraction * amount)))
