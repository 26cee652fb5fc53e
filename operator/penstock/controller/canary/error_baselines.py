"""Baseline error counts of each service over the last hour; its next canary is compared with them."""

from collections.abc import Callable, Mapping

from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.informer import Key
from penstock.controller.process.failures import Failures
from penstock.core.canary.counts import Counts
from penstock.core.canary.evidence import NO_HISTORY, History
from penstock.core.observed.rollout_phases import SETTLED_PHASES
from penstock.core.observed.stored_status import stored_status
from penstock.core.rollout.baseline_errors import BaselineErrors


class ErrorBaselines:
    """Baseline error counts of all services, over sliding windows.

    counts: requests and errors of a service since the operator started; None if no gateway knows the
    service.
    """

    def __init__(
        self,
        services: Callable[[], Mapping[Key, Object]],
        counts: Callable[[Key], Counts | None],
        failures: Failures,
    ) -> None:
        self._failures = failures
        self._services = services
        self._counts = counts
        self._baselines: dict[Key, BaselineErrors] = {}
        self._paused: set[Key] = set()

    def observe(self, now_s: float) -> None:
        """Add the current counts of all services without a rollout. now_s: monotonic clock.

        Services with a rollout are skipped, as their counts include the canary's errors.
        """
        services = self._services()
        self._baselines = {key: each for key, each in self._baselines.items() if key in services}
        self._paused &= services.keys()
        for key, body in services.items():
            with self._failures.isolate_errors("judge", *key):
                self._observe_service(key, stored_status(body), now_s)

    def _observe_service(self, key: Key, status: Object, now_s: float) -> None:
        total = self._counts(key)
        if (status.get("rollout") or {}).get("phase") not in SETTLED_PHASES:
            self._paused.add(key)
        elif total is not None:
            self._baselines[key] = self._baseline(key, status, total).with_counts(now_s, total)
            self._paused.discard(key)

    def _baseline(self, key: Key, status: Object, total: Counts) -> BaselineErrors:
        stable = status.get("stableRevision") or ""
        baseline = self._baselines.get(key)
        if baseline is None or baseline.revision != stable:
            return BaselineErrors(stable)
        return baseline.without_gap(total) if key in self._paused else baseline

    def history(self, key: Key, stable: str) -> History:
        """Requests and errors of the stable revision in the last hour; NO_HISTORY for another one."""
        baseline = self._baselines.get(key)
        if baseline is None or baseline.revision != stable:
            return NO_HISTORY
        return baseline.history()
