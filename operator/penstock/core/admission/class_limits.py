"""Limits on the part of an engine that the requests of a class may use, in one search for the next."""

import math
from collections.abc import Iterable

from penstock.core.admission.admission_spec import AdmissionSpec
from penstock.core.admission.engine_load import EngineLoad, Waiting
from penstock.core.admission.priority_class import PriorityClass
from penstock.core.admission.room import BATCH_SHARE, MARGIN, YIELD_SHARE, Bounds, Fit, find_fit
from penstock.core.tenants.tenant import BATCH_PRIORITY


class ClassLimits:
    """Limits on the part of an engine that the requests of a class may use, in one search.

    is_late: they are for those that cannot be in time any more. yields: a higher class is active.
    """

    def __init__(
        self, spec: AdmissionSpec, of: PriorityClass, now: float, *, is_late: bool, yields: bool
    ) -> None:
        self._spec = spec
        self._shares = of.shares
        self._now = now
        self._latest_s = now + spec.ttft_s * MARGIN
        self._is_late = is_late
        self._most_s = math.inf
        if is_late or yields:
            self._most_s = spec.ttft_s * YIELD_SHARE
        if of.priority <= BATCH_PRIORITY:
            self._most_s = spec.ttft_s * BATCH_SHARE

    @property
    def latest_deadline_s(self) -> float | None:
        """The time that a deadline may not be before, without the prefill; None: no request is late."""
        return self._latest_s if self._spec.policy == "deadline" else None

    def find_fit(self, engines: Iterable[EngineLoad], waiting: Waiting) -> Fit:
        """Find the engines that may take a request."""
        ttft_s = self._spec.ttft_s
        if self._spec.policy == "none":
            return Fit(list(engines))
        left_s = ttft_s * (1 - MARGIN)
        if self._spec.policy == "deadline" and not self._is_late:
            left_s = waiting.deadline_s - self._latest_s
        fraction = self._shares.fraction(waiting.requester.tenant)
        share_s = None if fraction >= 1 else fraction * ttft_s * (1 - MARGIN)
        bounds = Bounds(min(left_s, self._most_s), ttft_s * YIELD_SHARE, share_s)
        return find_fit(engines, waiting, bounds, self._now)
