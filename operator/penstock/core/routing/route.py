"""Rules of a ModelRoute: selects a service by header, user and weight.

the first rule that matches -> one of its services by weight, and copies for its mirrors
"""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.routing.affinity import Affinity
from penstock.core.routing.weights import choose_by_key, choose_by_weight


@dataclass(frozen=True, slots=True)
class Match:
    """Condition on a request: it has all of these headers, and its `user` is one of these.

    headers: (name in lower case, value). Empty fields hold for every request.
    """

    headers: tuple[tuple[str, str], ...] = ()
    users: frozenset[str] = frozenset()

    def holds(self, headers: Mapping[str, str], user: str | None) -> bool:
        """Whether a request meets the condition. headers: by lower-case name."""
        has_headers = all(headers.get(name) == value for name, value in self.headers)
        return has_headers and (not self.users or user in self.users)


@dataclass(frozen=True, slots=True)
class Mirror:
    """Service of the same namespace that gets copies of `percent` of the requests.

    revision: the one that gets them, with or without traffic; None: as the service's traffic is split.
    """

    service: str
    revision: str | None
    percent: float


@dataclass(frozen=True, slots=True)
class RouteRule:
    """Rule of a route.

    matches: conditions, one of which must hold; empty for every request. backends: services of the same
    namespace, each with its weight. affinity_header: name in lower case; requests with the same value of it
    stay with one backend, instead of those with the same `affinity`. timeout_s: of a whole request.
    """

    matches: tuple[Match, ...]
    backends: tuple[tuple[str, int], ...]
    affinity: Affinity = "None"
    affinity_header: str | None = None
    mirrors: tuple[Mirror, ...] = ()
    timeout_s: float | None = None

    def applies(self, headers: Mapping[str, str], user: str | None) -> bool:
        """headers: by their names in lower case."""
        return not self.matches or any(match.holds(headers, user) for match in self.matches)

    def service(self, draw: float, key: bytes | None) -> str:
        """The service that answers. draw: uniform in [0, 1). key: of the requests that stay together."""
        shares = [((name,), weight) for name, weight in self.backends if weight > 0]
        return (
            choose_by_key(shares, key)[0]
            if key is not None
            else choose_by_weight(shares, draw)[0][0]
        )

    def sampled_mirrors(self, draw: float) -> tuple[Mirror, ...]:
        """The mirrors that get a copy of one request. draw: uniform in [0, 1)."""
        return tuple(mirror for mirror in self.mirrors if 100 * draw < mirror.percent)


def first_match(
    rules: tuple[RouteRule, ...], headers: Mapping[str, str], user: str | None
) -> RouteRule | None:
    """The first rule that applies to a request; None if there is none."""
    return next((rule for rule in rules if rule.applies(headers, user)), None)
