"""HPA on the engines' queue: `vllm:num_requests_waiting` as a Pods metric."""

from penstock.core.rules.hpa.autoscaler import Hpa
from penstock.core.rules.hpa.behavior import DEFAULT, Behavior, Direction
from penstock.core.rules.hpa.gauge import EngineGauge
from penstock.core.rules.hpa.metric import PodsMetric
from penstock.core.signals import EngineReading


def hpa_queue(target: float = 5, down_window_s: float = 300) -> Hpa[PodsMetric | None]:
    down = Direction(DEFAULT.down.policies, down_window_s)
    gauge = EngineGauge("vllm:num_requests_waiting", _waiting, target)
    return Hpa(source=gauge, behavior=Behavior(down=down))


def _waiting(reading: EngineReading) -> float:
    return reading.waiting
