"""llm-d KEDA queue-guard: demand in replicas minus starting ones, which never causes a scale-down.

Source: llm-d guides/workload-autoscaling/keda-epp, overlay queue-guard. A series that is absent
reads as 0 (KEDA's ignoreNullValues), so a gateway that cannot be scraped looks idle, as published.
"""

from dataclasses import dataclass

from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import GatewayReading, Observation
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines.hpa.autoscaler import Activation, Hpa
from penstock.sim.baselines.hpa.behavior import Behavior, Direction, Policy
from penstock.sim.baselines.hpa.metric import AverageMetric


def keda_queue_guard(
    queue_target: float = 1, running_target: float = 16, down_window_s: float = 300
) -> Hpa[AverageMetric | None]:
    doubling = (Policy("Percent", 100, 15),)
    return Hpa(
        source=GuardedDemand(queue_target, running_target),
        behavior=Behavior(Direction(doubling, 0), Direction(doubling, down_window_s)),
        activation=Activation(),
    )


@dataclass(frozen=True, slots=True)
class GuardedDemand:
    queue_target: float
    running_target: float

    def initial(self) -> AverageMetric | None:
        return None

    def scrape(
        self,
        objectives: Objectives,
        bounds: Bounds,
        seen: Observation,
        series: AverageMetric | None,
    ) -> AverageMetric:
        queued, running = _queued_and_running(seen)
        demand = max(queued / self.queue_target, running / self.running_target)
        replicas = seen.provisioned
        if demand > replicas:
            demand = max(demand - (replicas - len(seen.ready)), replicas)
        return AverageMetric("guarded demand", 1.0, demand)

    def metrics(self, series: AverageMetric | None) -> tuple[AverageMetric, ...]:
        return (series,) if series else ()


def _queued_and_running(seen: Observation) -> tuple[int, int]:
    if isinstance(seen.gateway, GatewayReading):
        return seen.gateway.queued, seen.gateway.in_flight
    if seen.gateway is None:
        return sum(r.waiting for r in seen.readings), sum(r.running for r in seen.readings)
    return 0, 0
