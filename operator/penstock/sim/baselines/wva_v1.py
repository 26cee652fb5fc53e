"""WVA V1: steps of one replica by the spare KV and spare queue of unsaturated replicas.

Source: internal/saturation/analyzer.go. It waits while the desired count is not
reached or a replica does not report. The gateway's queue counts as waiting at the engines.
"""

from dataclasses import dataclass

from penstock.core.scaling.signals import Observation
from penstock.sim.baselines.hpa.autoscaler import Hpa
from penstock.sim.baselines.load import held_back
from penstock.sim.baselines.wva import PodLoad, WvaSeries, wva_hpa


def wva_v1(
    kv_threshold: float = 0.80,
    queue_threshold: float = 5,
    kv_spare: float = 0.10,
    queue_spare: float = 3,
    hpa_window_s: float = 120,
) -> Hpa[WvaSeries[None]]:
    spare = SpareAnalyzer(kv_threshold, queue_threshold, kv_spare, queue_spare)
    return wva_hpa(spare, hpa_window_s)


@dataclass(frozen=True, slots=True)
class SpareAnalyzer:
    """Analyzer of V1. *_threshold: saturation. *_spare: required mean spare below the threshold."""

    kv_threshold: float
    queue_threshold: float
    kv_spare: float
    queue_spare: float

    def initial(self) -> None:
        return None

    def target(
        self, seen: Observation, loads: tuple[PodLoad, ...], desired: int, memory: None
    ) -> tuple[int, None]:
        current, held = seen.provisioned, held_back(seen)[0]
        if desired not in (0, current):
            return desired, None
        if len(loads) != current:
            return current, None
        free = [
            load
            for load in loads
            if load.kv_usage < self.kv_threshold and load.waiting + held < self.queue_threshold
        ]
        n = len(free)
        kv = sum(load.kv_usage for load in free) / n if n else self.kv_threshold
        queue = sum(load.waiting for load in free) / n + held if n else self.queue_threshold
        if not self._is_spared(kv, queue):
            return current + 1, None
        if n >= 2 and self._is_spared(kv * n / (n - 1), queue * n / (n - 1)):
            return current - 1, None
        return current, None

    def _is_spared(self, kv: float, queue: float) -> bool:
        """Whether a mean load leaves the required spare capacity."""
        left_kv, left_queue = self.kv_threshold - kv, self.queue_threshold - queue
        return left_kv >= self.kv_spare - 1e-9 and left_queue >= self.queue_spare - 1e-9
