"""Rules of a ModelRoute: selects a service or an adapter by conditions on requests and by weight.

the first rule that matches -> one of its backends by weight, and copies for its mirrors
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from penstock.core.routing.affinity import Affinity
from penstock.core.routing.route_match import Match, RoutedRequest
from penstock.core.routing.sampling_limits import SamplingLimits
from penstock.core.routing.weights import choose_by_key, choose_by_weight

BackendKind = Literal["InferenceService", "LoraAdapter", "ExternalModel"]
SERVICE: Literal["InferenceService"] = "InferenceService"
ADAPTER: Literal["LoraAdapter"] = "LoraAdapter"
EXTERNAL: Literal["ExternalModel"] = "ExternalModel"


@dataclass(frozen=True, slots=True)
class Mirror:
    """Service of the same namespace that gets copies of `percent` of the requests.

    revision: the one that gets them, with or without traffic; None: as the service's traffic is split.
    """

    service: str
    revision: str | None
    percent: float

    def is_sampled(self, draw: float) -> bool:
        """Whether it gets a copy of one request. draw: uniform in [0, 1), another one for each mirror."""
        return 100 * draw < self.percent


@dataclass(frozen=True, slots=True)
class Backend:
    """A service, an adapter or an external model of the route's namespace."""

    name: str
    kind: BackendKind = SERVICE

    @property
    def names(self) -> tuple[str, ...]:
        """Name, and kind if it is no service: unique among the rule's backends."""
        return (self.name,) if self.kind == SERVICE else (self.name, self.kind)


class FallbackReason(StrEnum):
    """Why a request goes to a fallback, in the words of the ModelRoute."""

    OVERLOAD = "Overload"  # the service had no room for it in time
    ERROR = "Error"  # engines failed it
    ABSENCE = "Absence"  # there is no engine, or the backend does not exist
    LATE = "LateFirstToken"  # no engine has sent a first byte in time

    @property
    def label(self) -> str:
        """The reason in headers, logs and metrics, such as late_first_token."""
        return "late_first_token" if self is FallbackReason.LATE else self.value.lower()


@dataclass(frozen=True, slots=True)
class Fallback:
    """A backend that gets the requests which the backend before could not answer, for these reasons."""

    backend: Backend
    reasons: frozenset[FallbackReason] = frozenset(FallbackReason)


@dataclass(frozen=True, slots=True)
class RouteRule:
    """Rule of a route."""

    matches: tuple[Match, ...]  # conditions, one of which must hold; empty for every request
    # backends, adapters, externals: services, LoraAdapters and ExternalModels of the same namespace, each
    # with its weight
    backends: tuple[tuple[str, int], ...]
    affinity: Affinity = "None"
    # Name in lower case; requests with the same value of it stay with one backend, instead of those with the
    # same `affinity`
    affinity_header: str | None = None
    mirrors: tuple[Mirror, ...] = ()
    timeout_s: float | None = None  # of a whole request
    adapters: tuple[tuple[str, int], ...] = ()
    externals: tuple[tuple[str, int], ...] = ()
    fallbacks: tuple[Fallback, ...] = ()  # in order
    # Time from the arrival of a stream to its first byte, after which it falls back; None: the TTFT objective
    # of the service
    first_token_s: float | None = None
    sampling: SamplingLimits | None = None  # on what requests ask for

    def applies(self, request: RoutedRequest) -> bool:
        """Whether a request meets one of the conditions."""
        return not self.matches or any(match.holds(request) for match in self.matches)

    @property
    def all_backends(self) -> list[Backend]:
        """The backends, also those without weight."""
        return [backend for backend, _ in self._weighted]

    @property
    def _weighted(self) -> list[tuple[Backend, int]]:
        by_kind = (SERVICE, self.backends), (ADAPTER, self.adapters), (EXTERNAL, self.externals)
        return [(Backend(name, kind), weight) for kind, named in by_kind for name, weight in named]

    def backend(self, draw: float, key: bytes | None) -> Backend:
        """The backend that answers. draw: uniform in [0, 1). key: of the requests that stay together."""
        shares = [(backend, weight) for backend, weight in self._weighted if weight > 0]
        # The names of services alone: their requests stay where they went before there were adapters.
        by_names = {backend.names: backend for backend, _ in shares}
        named = [(backend.names, weight) for backend, weight in shares]
        names = choose_by_key(named, key) if key is not None else choose_by_weight(named, draw)[0]
        return by_names[names]


def first_match(rules: tuple[RouteRule, ...], request: RoutedRequest) -> RouteRule | None:
    """The first rule that applies to a request; None if there is none."""
    return next((rule for rule in rules if rule.applies(request)), None)
