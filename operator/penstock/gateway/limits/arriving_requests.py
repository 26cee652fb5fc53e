"""Requests that are still arriving, and which of them a gateway gives up for another one."""

from collections import Counter
from typing import Protocol

from penstock.gateway.limits.shared_limit import SharedLimit


class ArrivingRequest(Protocol):
    """A request whose body is incomplete. client: its network, as `client_network` returns it."""

    client: str

    def held(self, limit: SharedLimit) -> int:
        """Return what the request holds of one of the limits."""

    def give_up(self) -> None:
        """Give all back, and stop the reading of the body."""


class ArrivingRequests:
    """The requests of one gateway whose body is incomplete, by client.

    What each client holds is kept, so that a choice among thousands of requests takes no pass over them all.

    limits: those that the requests share.
    """

    def __init__(self, *limits: SharedLimit) -> None:
        # Requests by client, the oldest first; the inner values are unused.
        self._by_client: dict[str, dict[ArrivingRequest, None]] = {}
        self._held: dict[SharedLimit, Counter[str]] = {limit: Counter() for limit in limits}

    def add(self, request: ArrivingRequest) -> None:
        """Add a request that has begun to arrive."""
        self._by_client.setdefault(request.client, {})[request] = None
        for limit in self._held:
            self.note_growth(request, limit, request.held(limit))

    def note_growth(self, request: ArrivingRequest, limit: SharedLimit, amount: int) -> None:
        """Record that an added request holds this much more of a limit."""
        self._held[limit][request.client] += amount

    def remove(self, request: ArrivingRequest) -> None:
        """Remove a request, unless that has been done.

        Call it before the request gives back what it holds.
        """
        client = request.client
        requests = self._by_client.get(client, {})
        if request not in requests:
            return
        del requests[request]
        for limit, held in self._held.items():
            held[client] -= request.held(limit)
            if not requests:
                del held[client]
        if not requests:
            del self._by_client[client]

    def choose(self, limit: SharedLimit, amount: int) -> list[ArrivingRequest]:
        """Choose requests that hold this much of a limit, of the client that holds most of it.

        Returns the oldest one that alone holds as much. If there is none, returns the largest ones of that
        client, as few as needed. Returns none if all requests together hold less.
        """
        held = self._held[limit]
        if held.total() < amount:
            return []
        requests = self._by_client[max(held, key=held.__getitem__)]
        for each in requests:
            if each.held(limit) >= amount:
                return [each]
        chosen: list[ArrivingRequest] = []
        for each in sorted(requests, key=lambda request: request.held(limit), reverse=True):
            if amount <= 0 or not each.held(limit):
                break
            chosen.append(each)
            amount -= each.held(limit)
        return chosen
