"""Outlier ejection: leaves engines on which requests fail out of routing for a while.

The consecutive-failures detector of Envoy's outlier detection. A connection that fails, an answer that
breaks off before its first byte, and a status of 500 or more are failures; only an answer below 500
clears them. While an engine is ejected one request at a time probes it, at intervals that grow.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

# Consecutive failures that eject an engine, and the first and the longest ejection. Envoy has 5 and 30 s
# for the first; here a failure is retried elsewhere, and an engine that fails at once draws traffic.
EJECT_AFTER = 3
FIRST_EJECTION_S, LAST_EJECTION_S = 1.0, 30.0
# Of the engines of a service, how many that still accept connections may be ejected at the same time (one
# always may): the others would not carry the load, and what fails everywhere is not the engines' fault.
MAX_EJECTED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Health:
    """Failures of one engine since its last answer. ejections: in a row. retry_at_s: end of the present one
    on the monotonic clock. is_probed: a request tries the engine. is_unreachable: the last failure was a
    connection that could not be opened."""

    failures: int = 0
    ejections: int = 0
    retry_at_s: float = 0.0
    is_probed: bool = False
    is_unreachable: bool = False

    @property
    def is_failing(self) -> bool:
        return self.failures >= EJECT_AFTER

    def is_ejected(self, now: float) -> bool:
        return self.is_failing and now < self.retry_at_s

    def after_failure(self, now: float, *, is_unreachable: bool = False) -> "Health":
        """Requests that were there when the engine was ejected do not lengthen the ejection."""
        failed = replace(self, failures=self.failures + 1, is_unreachable=is_unreachable)
        if self.is_ejected(now) and not self.is_probed:
            return failed
        ejections = self.ejections + 1 if failed.is_failing else 0
        retry_at_s = now + _ejection_s(ejections)
        return replace(failed, ejections=ejections, retry_at_s=retry_at_s, is_probed=False)

    def after_excuse(self) -> "Health":
        """Takes one failure back: the same request failed on other engines too."""
        excused = replace(self, failures=max(0, self.failures - 1))
        return excused if excused.is_failing else replace(excused, ejections=0)

    def while_probed(self, now: float) -> "Health":
        """Extends the ejection for all other requests while one probes the engine."""
        return replace(self, retry_at_s=now + _ejection_s(self.ejections), is_probed=True)


def ejected(pods: Iterable[str], health: Mapping[str, Health], now: float) -> set[str]:
    """Engines to leave out. pods: all engines of a service; those without failures need no `health`.

    Unreachable engines are all left out. Of those that accept connections at most MAX_EJECTED_SHARE is,
    the ones with the most consecutive failures.
    """
    pods = list(pods)
    out = [pod for pod in pods if pod in health and health[pod].is_ejected(now)]
    answering = [pod for pod in out if not health[pod].is_unreachable]
    if not answering:
        return set(out)
    answering.sort(key=lambda pod: (-health[pod].failures, pod))
    spared = answering[max(1, int(MAX_EJECTED_SHARE * len(pods))) :]
    return set(out).difference(spared)


def _ejection_s(ejections: int) -> float:
    if not ejections:
        return 0.0
    return float(min(FIRST_EJECTION_S * 2 ** min(ejections - 1, 10), LAST_EJECTION_S))
