"""HPA on the engines' queue: `vllm:num_requests_waiting` as a Pods metric.

What a gateway holds back counts as waiting at the engines, in equal shares.
"""

from penstock.core.rules.hpa.autoscaler import Hpa
from penstock.core.rules.hpa.behavior import DEFAULT, Behavior, Direction
from penstock.core.rules.hpa.gauge import EngineGauge
from penstock.core.rules.hpa.metric import PodsMetric
from penstock.core.rules.load import held_back
from penstock.core.signals import EngineReading, Observation


def hpa_queue(target: float = 5, down_window_s: float = 300) -> Hpa[PodsMetric | None]:
    down = Direction(DEFAULT.down.policies, down_window_s)
    gauge = EngineGauge("vllm:num_requests_waiting", _waiting, target)
    return Hpa(source=gauge, behavior=Behavior(down=down))


def _waiting(reading: EngineReading, seen: Observation) -> float:
    return reading.waiting + held_back(seen)[0]
