"""HPA source: one gauge of every engine, as the custom metrics API returns it."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import EngineReading, Observation
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines.hpa.metric import PodsMetric


@dataclass(frozen=True, slots=True)
class EngineGauge:
    """Mean of a gauge over pods, against `target`. The series is the last scrape.

    A starting pod is Running without a metric, so Kubernetes counts it as missing.
    """

    name: str
    read: Callable[[EngineReading, Observation], float]
    target: float

    def initial(self) -> PodsMetric | None:
        return None

    def scrape(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, series: PodsMetric | None
    ) -> PodsMetric:
        values = tuple(self.read(reading, seen) for reading in seen.readings)
        without = len(seen.missing) + len(seen.starting)
        return PodsMetric(self.name, self.target, values, missing=without)

    def metrics(self, series: PodsMetric | None) -> tuple[PodsMetric, ...]:
        return (series,) if series else ()
