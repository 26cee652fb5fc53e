"""Observations of engines by their load, for tests of the KV rule."""

from dataclasses import replace

from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.signals import EngineReading, Missing, Observation, PodView, Source

EMPTY = Histogram((1.0,), (0, 0), 0.0)


def engine(
    usage: float = 0.0,
    waiting: int = 0,
    running: int = 0,
    pending: int = 0,
    capacity: int = 2048,
    *,
    at_s: float = 0.0,
    source: Source = "Engine",
) -> EngineReading:
    """Reading of an engine. pending: prompt tokens to be computed. capacity: tokens in its KV cache."""
    return EngineReading(
        at_s=at_s, running=running, waiting=waiting, kv_usage=usage, kv_capacity_tokens=capacity,
        prefill_tokens_pending=pending, prompt_tokens=0, cached_tokens=0, output_tokens=0, steps=0,
        finished=0, output_tokens_finished=0, preemptions=0, ttft_s=EMPTY, itl_s=EMPTY, source=source,
    )  # fmt: skip


def observation(
    *readings: EngineReading | Missing, provisioned: int | None = None, now_s: float = 0.0
) -> Observation:
    """Observation of ready engines. provisioned: by default as many as are ready."""
    pods = tuple(PodView(f"e{n}", "Ready", 0.0, 1.0, each) for n, each in enumerate(readings))
    return Observation(now_s, pods, len(pods) if provisioned is None else provisioned)


def at(seen: Observation, now_s: float) -> Observation:
    """The same observation at another time."""
    pods = (
        replace(pod, reading=replace(pod.reading, at_s=now_s))
        if isinstance(pod.reading, EngineReading)
        else pod
        for pod in seen.pods
    )
    return replace(seen, now_s=now_s, pods=tuple(pods))
