"""An engine's `/metrics` -> the few numbers that decisions use."""

import asyncio
import math

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from penstock.core.scaling import EngineSample, Missing
from penstock_engine import wire

# For all of it. A tick waits for the slowest engine.
TIMEOUT_S = 1.5

REQUIRED = (wire.RUNNING.name, wire.WAITING.name, wire.KV_USAGE.name, wire.CACHE_CONFIG.name)
WANTED = (*REQUIRED, wire.PREFILL_TOKENS_PENDING.name)  # vLLM does not have the last


class Scraper:
    """Reads engines over one pool of connections."""

    def __init__(self) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx.AsyncClient(timeout=TIMEOUT_S, limits=limits, trust_env=False)

    async def close(self) -> None:
        await self._client.aclose()

    async def sample(self, pod: str, address: str) -> EngineSample | Missing:
        """`address` is host:port. Never raises for what the engine does."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await self._client.get(f"http://{address}/metrics")
        except (httpx.HTTPError, TimeoutError) as error:
            return Missing(pod, type(error).__name__)
        if answer.status_code != 200:
            return Missing(pod, f"status {answer.status_code}")
        return parse(pod, answer.text)


def parse(pod: str, text: str) -> EngineSample | Missing:
    """Works on every engine with vLLM's metric names. An absurd number is Missing, with its name.

    Several series of one name (data-parallel ranks) are one engine: summed, and their KV use
    averaged.
    """
    try:
        found = _series(text)
    except (ValueError, KeyError):  # what the parser raises on text that is no exposition
        return Missing(pod, "unreadable metrics")
    for name in REQUIRED:
        if name not in found:
            return Missing(pod, f"{name} is absent")
    for name, samples in found.items():
        top = 1.0 if name == wire.KV_USAGE.name else math.inf
        for sample in samples:
            if not (math.isfinite(sample.value) and 0 <= sample.value <= top):
                return Missing(pod, f"{name} is {sample.value}")
    capacity_tokens = sum(map(_capacity_tokens, found[wire.CACHE_CONFIG.name]))
    if not capacity_tokens:
        return Missing(pod, f"{wire.CACHE_CONFIG.name} states no capacity")
    usage = [sample.value for sample in found[wire.KV_USAGE.name]]
    return EngineSample(
        pod=pod,
        running=_sum(found, wire.RUNNING),
        waiting=_sum(found, wire.WAITING),
        kv_usage=sum(usage) / len(usage),
        kv_capacity_tokens=capacity_tokens,
        prefill_tokens_pending=_sum(found, wire.PREFILL_TOKENS_PENDING),
    )


def _series(text: str) -> dict[str, list[Sample]]:
    """The samples that are wanted, by name. Other lines, most of them, are not even parsed."""
    lines = [line for line in text.splitlines() if line.startswith(WANTED)]
    found: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            if sample.name in WANTED:
                found.setdefault(sample.name, []).append(sample)
    return found


def _sum(found: dict[str, list[Sample]], metric: wire.MetricSpec) -> int:
    return int(sum(sample.value for sample in found.get(metric.name, [])))


def _capacity_tokens(config: Sample) -> int:
    blocks, size = config.labels.get("num_gpu_blocks", ""), config.labels.get("block_size", "")
    return int(blocks) * int(size) if blocks.isdecimal() and size.isdecimal() else 0
