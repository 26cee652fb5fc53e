"""HPA on GPU utilization: the share of time in which an engine runs any request.

It is near 1 whenever a batch runs, whether the engine is lightly loaded or saturated.
"""

from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import Observation
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines.hpa.autoscaler import Hpa
from penstock.sim.baselines.hpa.behavior import DEFAULT, Behavior, Direction
from penstock.sim.baselines.hpa.metric import PodsMetric
from penstock.sim.baselines.load import readings_by_pod
from penstock.sim.baselines.window import Samples, added

Shares: TypeAlias = tuple[dict[str, Samples], PodsMetric | None]


def hpa_busy(target: float = 0.8, down_window_s: float = 300) -> Hpa[Shares]:
    """HPA with a target share of busy time."""
    down = Direction(DEFAULT.down.policies, down_window_s)
    return Hpa(source=BusyShare(target), behavior=Behavior(down=down), scrape_s=5)


@dataclass(frozen=True, slots=True)
class BusyShare:
    """Share of the scrapes in the last window_s that found a running request, per pod.

    It is a Resource metric: pods that are not ready are set aside and not counted as missing.
    """

    target: float
    window_s: float = 60.0

    def initial(self) -> Shares:
        return {}, None

    def scrape(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, series: Shares
    ) -> Shares:
        past, _ = series
        busy = {
            name: added(past.get(name, ()), seen.now_s, float(r.running > 0), self.window_s)
            for name, r in readings_by_pod(seen).items()
        }
        shares = tuple(sum(s.value for s in pod) / len(pod) for pod in busy.values())
        metric = PodsMetric(
            "busy share", self.target, shares, len(seen.missing), len(seen.starting)
        )
        return busy, metric

    def metrics(self, series: Shares) -> tuple[PodsMetric, ...]:
        return (series[1],) if series[1] else ()
