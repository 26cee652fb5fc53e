"""Predicts the latency of a request that arrives now, as a router's predictor would.

It stands in for llm-d's predicted-latency-producer, which learns online; here the prediction comes from a
measured profile and the pod's counters. A prediction reacts to a queue at once, while a measured TTFT is
known only at the first token.
"""

from dataclasses import dataclass

from penstock.core.scaling.engine_profile import EngineProfile
from penstock.core.scaling.signals import EngineReading, Observation
from penstock.sim.baselines.load import held_back, readings_by_pod


@dataclass(frozen=True, slots=True)
class PodLatency:
    """Predicted latency at one pod."""

    ttft_s: float
    tpot_s: float


def predicted(
    profile: EngineProfile, before: dict[str, tuple[float, EngineReading]], seen: Observation
) -> tuple[PodLatency, ...]:
    """Predicted latency of each pod that has work and can be scraped.

    before: earlier reading of each pod with its time. The gateway's queue is ahead of the request.
    """
    queue = held_back(seen)
    return tuple(
        _of_pod(profile, reading, queue, seen.now_s, before.get(name))
        for name, reading in readings_by_pod(seen).items()
        if reading.running + reading.waiting
    )


def _of_pod(
    profile: EngineProfile,
    reading: EngineReading,
    queue: tuple[float, float],
    now_s: float,
    before: tuple[float, EngineReading] | None,
) -> PodLatency:
    """Predict one pod: the wait is for the tokens ahead, or for the requests ahead to finish, if longer."""
    at_s, earlier = before or (now_s, reading)
    steps = reading.steps - earlier.steps
    computed = _computed(reading) - _computed(earlier)
    per_step = max(0.0, computed / steps) if steps > 0 else 0.0
    finished = reading.finished - earlier.finished
    prompt = _mean_prompt(reading, earlier)
    waiting = reading.waiting + queue[0]
    queue_s = waiting * (now_s - at_s) / finished if finished > 0 else 0.0
    ahead_s = (reading.prefill_tokens_pending + queue[1]) / profile.prefill_tokens_per_s
    own_s = profile.base_s + prompt / profile.prefill_tokens_per_s
    tpot_s = profile.iteration_s(per_step, reading.running, reading.kv_tokens)
    return PodLatency(max(ahead_s, queue_s) + own_s, tpot_s)


def _computed(reading: EngineReading) -> int:
    return reading.prompt_tokens - reading.cached_tokens


def _mean_prompt(reading: EngineReading, earlier: EngineReading) -> float:
    first_tokens = reading.ttft_s.count - earlier.ttft_s.count
    if first_tokens <= 0:
        return 0.0
    return (_computed(reading) - _computed(earlier)) / first_tokens
