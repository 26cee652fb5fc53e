"""Which engine gets a request.

engines of revisions with traffic -> not tried, not ejected -> a revision by weight
  -> its least loaded engine
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

# Connect failures in a row that put an engine aside, and for how long at first and at most. Envoy's
# outlier detection has the same shape with 5 and 30 s; here a dead engine refuses at once.
EJECT_AFTER = 3
FIRST_EJECTION_S, LAST_EJECTION_S = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An engine that is ready. pod: "namespace/name"; address: "host:port"."""

    pod: str
    address: str
    revision: str


@dataclass(frozen=True, slots=True)
class Pick:
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class NoEndpoint:
    """all_tried: there are engines, and each of them has failed this request already."""

    reason: str
    all_tried: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """How connecting to one engine went lately. Times are seconds on a monotonic clock."""

    failures: int = 0  # in a row
    retry_at_s: float = 0.0

    @property
    def is_failing(self) -> bool:
        return self.failures >= EJECT_AFTER

    def is_ejected(self, now: float) -> bool:
        return self.is_failing and now < self.retry_at_s

    def after_failure(self, now: float) -> "Health":
        failures = self.failures + 1
        return Health(failures, now + _ejection_s(failures))

    def while_probed(self, now: float) -> "Health":
        """One request tries an engine whose time is over; the others stay away meanwhile."""
        return replace(self, retry_at_s=now + _ejection_s(self.failures))


def pick(
    endpoints: Sequence[Endpoint],
    weights: Mapping[str, int],
    draw: float,
    exclude: Collection[str] = (),
    *,
    load: Mapping[str, int],
    ejected: Collection[str] = (),
) -> Pick | NoEndpoint:
    """The engine for one request.

    weights: revision -> share of the traffic; one without a share gets nothing, and the share of
    one without engines falls to the others. draw: uniform in [0, 1). load: pod -> tokens in flight,
    none when absent. exclude, ejected: pods. When only ejected engines are left they are used: a
    failing engine is better than none.
    """
    serving = [e for e in endpoints if weights.get(e.revision, 0) > 0]
    if not serving:
        return NoEndpoint("no engine is ready" if weights else "no revision takes traffic yet")
    untried = [e for e in serving if e.pod not in exclude]
    if not untried:
        return NoEndpoint("every ready engine was tried", all_tried=True)
    able = [e for e in untried if e.pod not in ejected] or untried
    revision, draw = _revision(able, weights, draw)
    engines = [e for e in able if e.revision == revision]
    least = min(load.get(e.pod, 0) for e in engines)
    idlest = [e for e in engines if load.get(e.pod, 0) == least]
    return Pick(idlest[int(draw * len(idlest))])


def _revision(
    endpoints: Sequence[Endpoint], weights: Mapping[str, int], draw: float
) -> tuple[str, float]:
    """A revision in proportion to its weight, and what is left of the draw: uniform again."""
    present = {e.revision for e in endpoints}
    shares = [(revision, weight) for revision, weight in weights.items() if revision in present]
    point = draw * sum(weight for _, weight in shares)
    for revision, weight in shares[:-1]:
        if point < weight:
            return revision, point / weight
        point -= weight
    revision, weight = shares[-1]
    return revision, min(point / weight, 1 - 2**-53)  # rounding may carry the point past the end


def _ejection_s(failures: int) -> float:
    over = failures - EJECT_AFTER
    if over < 0:
        return 0.0
    return float(min(FIRST_EJECTION_S * 2 ** min(over, 10), LAST_EJECTION_S))
