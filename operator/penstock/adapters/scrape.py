"""An engine's `/metrics` -> the few numbers that decisions use."""

import math

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from penstock.core.scaling import EngineSample, Missing
from penstock_engine import wire

TIMEOUT = httpx.Timeout(1.5)


class Scraper:
    """Reads engines over one pool of connections."""

    def __init__(self) -> None:
        self._client = httpx.AsyncClient(timeout=TIMEOUT)

    async def close(self) -> None:
        await self._client.aclose()

    async def sample(self, pod: str, address: str) -> EngineSample | Missing:
        """`address` is host:port. Never raises for what the engine does."""
        try:
            answer = await self._client.get(f"http://{address}/metrics")
        except httpx.HTTPError as error:
            return Missing(pod, type(error).__name__)
        if answer.status_code != 200:
            return Missing(pod, f"status {answer.status_code}")
        return parse(pod, answer.text)


def parse(pod: str, text: str) -> EngineSample | Missing:
    """Works on every engine with vLLM's metric names. An absurd number is Missing, with its name."""
    wanted = {
        wire.RUNNING.name,
        wire.WAITING.name,
        wire.KV_USAGE.name,
        wire.CACHE_CONFIG.name,
        wire.PREFILL_TOKENS_PENDING.name,
    }
    found: dict[str, Sample] = {}
    try:
        for family in text_string_to_metric_families(text):
            if family.name in wanted:
                found |= {sample.name: sample for sample in family.samples}
    except ValueError:
        return Missing(pod, "unreadable metrics")
    numbers: dict[str, float] = {}
    for name in (wire.RUNNING.name, wire.WAITING.name, wire.KV_USAGE.name):
        if name not in found:
            return Missing(pod, f"{name} is absent")
        numbers[name] = found[name].value
    pending = found.get(wire.PREFILL_TOKENS_PENDING.name)  # vLLM does not have it
    numbers[wire.PREFILL_TOKENS_PENDING.name] = pending.value if pending else 0.0
    for name, value in numbers.items():
        if not math.isfinite(value) or value < 0 or (name == wire.KV_USAGE.name and value > 1):
            return Missing(pod, f"{name} is {value}")
    capacity_tokens = _capacity_tokens(found.get(wire.CACHE_CONFIG.name))
    if capacity_tokens is None:
        return Missing(pod, f"{wire.CACHE_CONFIG.name} states no capacity")
    return EngineSample(
        pod=pod,
        running=int(numbers[wire.RUNNING.name]),
        waiting=int(numbers[wire.WAITING.name]),
        kv_usage=numbers[wire.KV_USAGE.name],
        kv_capacity_tokens=capacity_tokens,
        prefill_tokens_pending=int(numbers[wire.PREFILL_TOKENS_PENDING.name]),
    )


def _capacity_tokens(config: Sample | None) -> int | None:
    if config is None:
        return None
    blocks, size = config.labels.get("num_gpu_blocks", ""), config.labels.get("block_size", "")
    if not (blocks.isdecimal() and size.isdecimal()):
        return None
    return int(blocks) * int(size) or None
