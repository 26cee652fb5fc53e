"""Requests that wait until the routing snapshot changes for them."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

# The service "namespace/name" of a request, and its adapter in the same form, empty for the base model.
Key = tuple[str, str]

# Seconds of the event loop that it takes to wake a request which finds nothing and waits again.
WAKE_S = 20e-6
# Fraction of the event loop for the wake-ups of one namespace, whose objects may change all the time. While
# 1,000 of its requests wait, they are woken five times a second.
MAX_WAKE_SHARE = 0.1


@dataclass(slots=True)
class _Group:
    """Requests with one key. changed: set when they are woken."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)
    num_waiting: int = 0


class ChangeWaiters:
    """Wakes the requests of a namespace in bounded time, so that no other namespace pays for its changes."""

    def __init__(self) -> None:
        self._groups: dict[Key, _Group] = {}
        # Keys to wake at the timer of their namespace.
        self._due: dict[str, set[Key]] = {}
        # When the next wake-up of a namespace may be, on the loop's clock.
        self._next_s: dict[str, float] = {}

    @property
    def keys(self) -> list[Key]:
        """The keys that requests wait for."""
        return list(self._groups)

    async def wait(self, key: Key, timeout_s: float) -> bool:
        """Wait until requests with this key are woken. Returns False if they are not within `timeout_s`.

        Also returns True for an earlier change, if its wake-up was still due.
        """
        group = self._groups.setdefault(key, _Group())
        group.num_waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await group.changed.wait()
        except TimeoutError:
            return False
        finally:
            group.num_waiting -= 1
            if not group.num_waiting and self._groups.get(key) is group:
                del self._groups[key]

    def wake(self, keys: Iterable[Key]) -> None:
        """Wake all requests with these keys: now, or as soon as their namespaces' last wake-ups allow."""
        by_namespace: dict[str, set[Key]] = {}
        for key in keys:
            by_namespace.setdefault(key[0].partition("/")[0], set()).add(key)
        for namespace, found in by_namespace.items():
            if namespace in self._due:
                self._due[namespace] |= found
                continue
            self._due[namespace] = found
            loop = asyncio.get_running_loop()
            next_s = self._next_s.get(namespace, 0.0)
            if next_s <= loop.time():
                self._wake_due(namespace)
            else:
                loop.call_at(next_s, self._wake_due, namespace)

    def _wake_due(self, namespace: str) -> None:
        num_woken = 0
        for key in self._due.pop(namespace):
            if group := self._groups.pop(key, None):
                num_woken += group.num_waiting
                group.changed.set()
        now_s = asyncio.get_running_loop().time()
        self._next_s = {name: at_s for name, at_s in self._next_s.items() if at_s > now_s}
        self._next_s[namespace] = now_s + num_woken * WAKE_S / MAX_WAKE_SHARE
