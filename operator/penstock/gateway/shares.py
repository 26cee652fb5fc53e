"""Shares of the gateway's limits, so that nobody can take a whole one from all others.

    limit               one service    requests that are still arriving    copies for mirrors
    client connections  a half         a half, then the oldest gets a 408  none
    memory of bodies    a half         a half, then the oldest gets a 408  an eighth, in addition
    number of copies    a half         -                                   all
    requests that wait  its own limit  -                                   -
    retries             its own limit  -                                   -

A request that is still arriving belongs to no service yet: its body names the model. Probes, metrics and
the operator have connections of their own (`http_servers.py`).
"""

# Fraction of a limit that one service may hold, so that one whose engines are slow or absent leaves the
# rest to the others.
SERVICE_SHARE = 0.5
# Fraction that requests may hold before they are complete, so that slow clients leave the rest to requests
# that are served.
ARRIVING_SHARE = 0.5
# Size of the memory for copies as a fraction of that for requests. Copies may be dropped, requests may not.
COPIES_SHARE = 0.125


def share(limit: int, fraction: float) -> int:
    """A fraction of a limit, at least 1."""
    return max(1, int(fraction * limit))


class SharedLimit:
    """A limit on what several services hold together, of which each may hold its share."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._service_limit = share(limit, SERVICE_SHARE)
        self._by_service: dict[str, int] = {}
        self.held = 0

    def has_room(self, service: str, amount: int) -> bool:
        """Whether the service may hold this much more."""
        held_by_service = self._by_service.get(service, 0)
        return self.held + amount <= self._limit and held_by_service + amount <= self._service_limit

    def add(self, service: str, amount: int) -> None:
        """Count what the service holds in addition."""
        self.held += amount
        self._by_service[service] = self._by_service.get(service, 0) + amount

    def remove(self, service: str, amount: int) -> None:
        """Undo `add`."""
        self.held -= amount
        self._by_service[service] -= amount
        if not self._by_service[service]:
            del self._by_service[service]
