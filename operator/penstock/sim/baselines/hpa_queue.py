"""HPA on the engines' queue: `vllm:num_requests_waiting` as a Pods metric.

The gateway's queue counts as waiting at the engines, in equal shares.
"""

from penstock.core.scaling.signals import EngineReading, Observation
from penstock.sim.baselines.hpa.autoscaler import Hpa
from penstock.sim.baselines.hpa.behavior import DEFAULT, Behavior, Direction
from penstock.sim.baselines.hpa.gauge import EngineGauge
from penstock.sim.baselines.hpa.metric import PodsMetric
from penstock.sim.baselines.load import held_back


def hpa_queue(target: float = 5, down_window_s: float = 300) -> Hpa[PodsMetric | None]:
    down = Direction(DEFAULT.down.policies, down_window_s)
    gauge = EngineGauge("vllm:num_requests_waiting", _waiting, target)
    return Hpa(source=gauge, behavior=Behavior(down=down))


def _waiting(reading: EngineReading, seen: Observation) -> float:
    return reading.waiting + held_back(seen)[0]
