"""Selects an endpoint: a side by weight, then the engine of it with the highest score.

engines of sides with traffic -> not tried, not ejected -> a side by weight
  -> the engine with the highest score
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.core.routing.request_attributes import RequestAttributes
from penstock.core.routing.scorers import choose
from penstock.core.routing.weights import choose_by_key, choose_by_weight


class Side(NamedTuple):
    """Engines that share a weight: those of a revision, or its control pods."""

    revision: str
    cohort: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An engine that is ready. pod: "namespace/name"; address: "host:port"."""

    pod: str
    address: str
    revision: str
    cohort: str = ""
    side: Side = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "side", Side(self.revision, self.cohort))


# Endpoints by side. Sides without endpoints are absent.
BySide = Mapping[Side, Sequence[Endpoint]]


@dataclass(frozen=True, slots=True)
class PickedSide:
    """The selected side. endpoints: all of the side, at least one. draw: a new number, uniform in [0, 1)."""

    side: Side
    endpoints: tuple[Endpoint, ...]
    draw: float


@dataclass(frozen=True, slots=True)
class NoEndpoint:
    """No endpoint can be selected. all_tried: each endpoint has failed this request already."""

    reason: str
    all_tried: bool = False


def pick(
    endpoints: Sequence[Endpoint],
    weights: Mapping[Side, int],
    draw: float,
    exclude: Collection[str] = (),
    *,
    load: Mapping[str, int],
    ejected: Collection[str] = (),
    key: bytes | None,
    request: RequestAttributes,
) -> Endpoint | NoEndpoint:
    """Select the engine of a side that scores highest. load: tokens in flight by pod, 0 if absent.

    request: for the scorers, which do not know `key`. Other arguments: see `pick_side`.
    """
    chosen = pick_side(endpoints, weights, draw, exclude, ejected=ejected, key=key)
    if isinstance(chosen, NoEndpoint):
        return chosen
    return choose_endpoint(chosen.endpoints, load, chosen.draw, request)


def choose_endpoint(
    endpoints: Sequence[Endpoint], load: Mapping[str, int], draw: float, request: RequestAttributes
) -> Endpoint:
    """Choose the endpoint that scores highest. Arguments: see `pick`."""
    tokens = [load.get(e.pod, 0) for e in endpoints]
    return choose(endpoints, tokens, draw, request)


def pick_side(
    endpoints: Sequence[Endpoint],
    weights: Mapping[Side, int],
    draw: float,
    exclude: Collection[str] = (),
    *,
    ejected: Collection[str] = (),
    key: bytes | None,
) -> PickedSide | NoEndpoint:
    """The engines of one side that may take a request.

    weights: share of the traffic; a side without one gets nothing, and the share of one without
    engines falls to the others. draw: uniform in [0, 1). exclude, ejected: pods. key: session-affinity
    key: requests with the same key stay on one side; None: each is assigned by `draw`. When only
    ejected engines are left they are used: a failing engine is better than none.
    """
    sides = (side for side, weight in weights.items() if weight > 0)
    serving = _drop_empty_sides({side: [e for e in endpoints if e.side == side] for side in sides})
    if not serving:
        return NoEndpoint("no engine is ready" if weights else "no revision receives traffic yet")
    untried = _exclude_pods(serving, exclude)
    if not untried:
        return NoEndpoint("every ready engine was tried", all_tried=True)
    able = _exclude_pods(untried, ejected) or untried
    shares = [(side, weights[side]) for side in able]
    if len(shares) == 1:
        ((side, _),) = shares
    elif key is None:
        side, draw = choose_by_weight(shares, draw)
    else:
        side = choose_by_key(shares, key)
    return PickedSide(side, tuple(able[side]), draw)


def _exclude_pods(sides: BySide, pods: Collection[str]) -> BySide:
    """The endpoints that are none of the pods."""
    if not pods:
        return sides
    return _drop_empty_sides(
        {side: [e for e in endpoints if e.pod not in pods] for side, endpoints in sides.items()}
    )


def _drop_empty_sides(sides: BySide) -> BySide:
    return {side: endpoints for side, endpoints in sides.items() if endpoints}
