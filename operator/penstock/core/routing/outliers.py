"""Outlier ejection: takes engines with consecutive failures out of routing for a while.

Works like the consecutive-failures detector of Envoy's outlier detection. Failures are: a connection
that fails, an answer that breaks off, a status of 500 or more. Only an answer without an error resets
them: its first byte, or its end where an answer broke off behind the first byte. A status of 4xx, also in
an error event, is neutral: an engine that fails every good request can still refuse bad ones. An ejected
engine is probed by one request at a time, at growing intervals.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.core.backoff import backoff_s

# Consecutive failures that eject an engine; the first and the longest ejection. Envoy's defaults are 5
# and 30 s. Less is safe here, as failed requests are retried, and necessary, as an engine that fails
# fast looks idle and attracts traffic.
EJECT_AFTER = 3
FIRST_EJECTION_S, LAST_EJECTION_S = 1.0, 30.0
# Bound on the fraction of a service's engines that are ejected at once although they accept
# connections; one always may be. The rest could not carry the load, and what fails everywhere is not
# the engines' fault.
MAX_EJECTED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Health:
    """Failures of one engine since its last answer.

    ejections: number of consecutive ejections. retry_at_s: end of the current ejection on the monotonic
    clock. is_probed: whether a request probes the engine. is_unreachable: whether the last failure was a
    failed connection. has_broken_off: whether one failure was a truncated answer.
    """

    failures: int = 0
    ejections: int = 0
    retry_at_s: float = 0.0
    is_probed: bool = False
    is_unreachable: bool = False
    has_broken_off: bool = False

    @property
    def is_failing(self) -> bool:
        return self.failures >= EJECT_AFTER

    def is_ejected(self, now: float) -> bool:
        return self.is_failing and now < self.retry_at_s

    def after_failure(
        self, now: float, *, is_unreachable: bool = False, broke_off: bool = False
    ) -> "Health":
        """Count a failure, and eject if there are enough. Failures of requests sent before the
        ejection do not lengthen it."""
        failed = replace(
            self,
            failures=self.failures + 1,
            is_unreachable=is_unreachable,
            has_broken_off=self.has_broken_off or broke_off,
        )
        if self.is_ejected(now) and not self.is_probed:
            return failed
        ejections = self.ejections + 1 if failed.is_failing else 0
        retry_at_s = now + _ejection_s(ejections)
        return replace(failed, ejections=ejections, retry_at_s=retry_at_s, is_probed=False)

    def after_excuse(self) -> "Health":
        """Take back one failure, as the request itself may have been at fault."""
        excused = replace(self, failures=max(0, self.failures - 1))
        return excused if excused.is_failing else replace(excused, ejections=0)

    def while_probed(self, now: float) -> "Health":
        """Extend the ejection for all other requests while one probes the engine."""
        return replace(self, retry_at_s=now + _ejection_s(self.ejections), is_probed=True)


def ejected(pods: Iterable[str], health: Mapping[str, Health], now: float) -> set[str]:
    """Engines to exclude from routing. pods: all engines of a service. health: of those with failures.

    All unreachable engines are excluded; of those that accept connections at most MAX_EJECTED_SHARE,
    those with the most consecutive failures.
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
    return backoff_s(ejections - 1, FIRST_EJECTION_S, LAST_EJECTION_S)
