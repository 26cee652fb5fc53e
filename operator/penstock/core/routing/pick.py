"""Selects the side whose engines may take a request, by weight. `cost.py` then chooses one of them.

engines of sides with traffic -> not tried, not ejected -> a side by weight
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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

    @property
    def any_endpoint(self) -> Endpoint:
        """An endpoint of the side, whatever its load."""
        return self.endpoints[int(self.draw * len(self.endpoints))]


@dataclass(frozen=True, slots=True)
class NoEndpoint:
    """No endpoint can be selected. all_tried: each endpoint has failed this request already."""

    reason: str
    all_tried: bool = False


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
