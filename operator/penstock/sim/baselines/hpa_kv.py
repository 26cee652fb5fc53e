"""HPA on KV cache use: `vllm:kv_cache_usage_perc` as a Pods metric.

The ratio never exceeds 1 / target, so a step cannot request the true deficit: at most 1.25 x at 0.8.
"""

from penstock.core.scaling.signals import EngineReading, Observation
from penstock.sim.baselines.hpa.autoscaler import Hpa
from penstock.sim.baselines.hpa.behavior import DEFAULT, Behavior, Direction
from penstock.sim.baselines.hpa.gauge import EngineGauge
from penstock.sim.baselines.hpa.metric import PodsMetric


def hpa_kv(target: float = 0.8, down_window_s: float = 300) -> Hpa[PodsMetric | None]:
    down = Direction(DEFAULT.down.policies, down_window_s)
    gauge = EngineGauge("vllm:kv_cache_usage_perc", _kv_usage, target)
    return Hpa(source=gauge, behavior=Behavior(down=down))


def _kv_usage(reading: EngineReading, seen: Observation) -> float:
    return reading.kv_usage
