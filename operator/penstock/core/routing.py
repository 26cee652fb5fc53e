"""Which pod a request goes to: revision by weight, then the least loaded healthy pod."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

# Consecutive failures to connect that take a pod out, and for how long; each further failure of
# its single probe doubles the pause. Envoy's outlier detection has the same shape with 5 and 30 s;
# a killed engine is refused at once here, so 2 suffice.
FAILURES_TO_EJECT = 2
FIRST_EJECTION_S, LAST_EJECTION_S = 2.0, 30.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One ready engine pod and the gateway's own count of its requests in flight."""

    pod: str
    address: str  # host:port
    revision: str
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class PodHealth:
    """What connecting to a pod has been like. ejected_until_s on the caller's clock."""

    failures: int = 0
    ejected_until_s: float = 0.0

    def failed(self, now: float) -> "PodHealth":
        failures = self.failures + 1
        if failures < FAILURES_TO_EJECT:
            return PodHealth(failures, self.ejected_until_s)
        doublings = min(failures - FAILURES_TO_EJECT, 10)
        pause_s = min(FIRST_EJECTION_S * 2**doublings, LAST_EJECTION_S)
        return replace(self, failures=failures, ejected_until_s=now + pause_s)

    def is_ejected(self, now: float) -> bool:
        """False when the pause is over: the next request is the probe."""
        return now < self.ejected_until_s


@dataclass(frozen=True, slots=True)
class Pick:
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class NoEndpoint:
    reason: str


def pick(
    endpoints: Sequence[Endpoint],
    weights: Mapping[str, int],
    health: Mapping[str, PodHealth],
    *,
    tried: Collection[str],
    draw: float,
    now: float,
) -> Pick | NoEndpoint:
    """`draw` is uniform in [0, 1). Pods already `tried` are left out while there are others.

    Ejected pods are left out too, but never all of them: a wrong judgement about every pod must
    not turn the service off.
    """
    with_traffic = [e for e in endpoints if weights.get(e.revision, 0) > 0]
    if not with_traffic:
        return NoEndpoint("no pod of a revision with traffic is ready")
    candidates = [e for e in with_traffic if e.pod not in tried] or with_traffic
    sound = [e for e in candidates if not health.get(e.pod, PodHealth()).is_ejected(now)]
    candidates = sound or candidates
    revision, rest = _draw_revision(candidates, weights, draw)
    pods = sorted((e for e in candidates if e.revision == revision), key=lambda e: e.pod)
    least = min(e.in_flight for e in pods)
    idle = [e for e in pods if e.in_flight == least]
    return Pick(idle[int(rest * len(idle))])


def _draw_revision(
    candidates: Sequence[Endpoint], weights: Mapping[str, int], draw: float
) -> tuple[str, float]:
    """A revision that has a candidate, by weight, and what is left of the draw, uniform again."""
    revisions = sorted({e.revision for e in candidates})
    point = draw * sum(weights[r] for r in revisions)
    for revision in revisions:
        if point < weights[revision]:
            return revision, point / weights[revision]
        point -= weights[revision]
    return revisions[-1], 0.0
