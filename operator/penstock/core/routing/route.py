"""A name of a model that stands for rules: who is served by which service.

the first rule that matches -> one of its services by weight, and copies for its shadows
"""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.routing.affinity import StickyBy
from penstock.core.routing.weights import choose_by_key, choose_by_weight


@dataclass(frozen=True, slots=True)
class Match:
    """Headers have all of these values, and the `user` is one of these. Empty: whatever it is."""

    headers: tuple[tuple[str, str], ...] = ()
    users: frozenset[str] = frozenset()

    def holds(self, headers: Mapping[str, str], user: str | None) -> bool:
        """headers: by their names in lower case."""
        has_headers = all(headers.get(name) == value for name, value in self.headers)
        return has_headers and (not self.users or user in self.users)


@dataclass(frozen=True, slots=True)
class Shadow:
    """A copy of `percent` of the requests goes to a service of the same namespace, or to one revision
    of it, whether that has a share of the traffic or not."""

    service: str
    revision: str | None
    percent: float


@dataclass(frozen=True, slots=True)
class RouteRule:
    """backends: services of the same namespace, each with its weight. sticky_header: what has the same
    value stays with one backend; it counts before sticky_by."""

    match: Match
    backends: tuple[tuple[str, int], ...]
    sticky_by: StickyBy = "None"
    sticky_header: str | None = None
    shadows: tuple[Shadow, ...] = ()

    def service(self, draw: float, key: bytes | None) -> str:
        """draw: uniform in [0, 1). key: None where nothing is kept."""
        shares = [((name,), weight) for name, weight in self.backends if weight > 0]
        return (
            choose_by_key(shares, key)[0]
            if key is not None
            else choose_by_weight(shares, draw)[0][0]
        )

    def copied(self, draw: float) -> tuple[Shadow, ...]:
        """draw: uniform in [0, 1)."""
        return tuple(shadow for shadow in self.shadows if 100 * draw < shadow.percent)


def matching(
    rules: tuple[RouteRule, ...], headers: Mapping[str, str], user: str | None
) -> RouteRule | None:
    return next((rule for rule in rules if rule.match.holds(headers, user)), None)
