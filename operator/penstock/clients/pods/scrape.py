"""Scrapes engines' metrics and gateways' stats reports over HTTP."""

import asyncio
import math
from collections.abc import Callable

import aiohttp

from penstock.clients.pods import stats_report
from penstock.clients.pods.exposition import Samples, label
from penstock.clients.pods.session import pod_session, read_bounded
from penstock.clients.pods.shared_slots import SharedSlots
from penstock.core.observed.fetches import FetchProgress
from penstock.core.observed.gateway_report import GatewayReport
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.signals import CacheSettings, EngineReading, Missing, Source
from penstock_engine.contract import feature_metric_specs as features
from penstock_engine.contract import metric_specs as specs

# Time limit of one scrape, in seconds. The operator's tick waits for the slowest engine.
TIMEOUT_S = 1.5
# Time limit of one scrape and of its wait for a slot, in seconds: thousands of engines that hang, which take
# the slots of their namespace one after the other, delay the tick by no more.
MAX_WAIT_S = 2 * TIMEOUT_S
# Bound on the metrics of an engine: vLLM's have less than 1 MiB. Hundreds of engines are scraped together.
MAX_METRICS_BYTES = 4 << 20
# Bound on the stats report of a gateway, which has some KiB for each service and adapter.
MAX_REPORT_BYTES = 64 << 20
# Largest value of a sample: integers up to it are exact as floats, and sums of samples stay finite.
MAX_VALUE = float(1 << 53)
# Most digits of a number in a label, such as that of KV cache blocks: Python refuses to read 4,300 digits.
MAX_DIGITS = 9
# Scrapes of engines at the same time, of which a namespace that is alone gets half. Their work must be a
# small part of TIMEOUT_S: this many take about 0.2 s of CPU.
MAX_SCRAPES = 512

STEPS = f"{specs.ITERATION_TOKENS.name}_count"
FINISHED = f"{specs.REQUEST_GENERATION_TOKENS.name}_count"
FINISHED_TOKENS = f"{specs.REQUEST_GENERATION_TOKENS.name}_sum"
HISTOGRAMS = (specs.TIME_TO_FIRST_TOKEN.name, specs.INTER_TOKEN_LATENCY.name)

REQUIRED = (
    specs.RUNNING.name, specs.WAITING.name, specs.KV_USAGE.name, specs.CACHE_CONFIG.name,
    specs.PROMPT_TOKENS.name, specs.PROMPT_TOKENS_CACHED.name, specs.GENERATION_TOKENS.name,
    specs.PREEMPTED.name, STEPS, FINISHED, FINISHED_TOKENS,
    *(f"{name}{part}" for name in HISTOGRAMS for part in ("_bucket", "_sum")),
)  # fmt: skip
# vLLM has CORRUPTED only if it is configured to check for it, and none of the others.
WANTED = (
    *REQUIRED, specs.PREFILL_TOKENS_PENDING.name, specs.BUSY_SECONDS.name, specs.CORRUPTED.name,
    specs.MAX_SEQS.name, specs.MAX_BATCHED_TOKENS.name,
)  # fmt: skip


class InvalidSample(ValueError):
    """A metric is absent or has an impossible value. The text names it."""


class Scraper:
    """Scrapes over one session. now: the clock of the readings.

    Addresses are "host:port". Errors of the other side are returned as Missing, with the reason.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._slots = SharedSlots(MAX_SCRAPES)
        self.now = now

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def read(self, namespace: str, pod: str, address: str) -> EngineReading | Missing:
        """Scrape the metrics of an engine. Engines of one namespace leave slots to those of others."""
        try:
            async with asyncio.timeout(MAX_WAIT_S), self._slots.hold(namespace):
                text = await self._get(pod, f"http://{address}/metrics", MAX_METRICS_BYTES)
        except TimeoutError as error:
            return Missing(pod, type(error).__name__)
        return text if isinstance(text, Missing) else parse(pod, text, self.now())

    async def fetch_progress(self, namespace: str, pod: str, address: str) -> FetchProgress | None:
        """Scrape how far the fetch of a pod's model is; None if its container does not answer."""
        try:
            async with asyncio.timeout(MAX_WAIT_S), self._slots.hold(namespace):
                text = await self._get(pod, f"http://{address}/metrics", MAX_METRICS_BYTES)
        except TimeoutError:
            return None
        return None if isinstance(text, Missing) else progress_of(text)

    async def stats_report(self, pod: str, address: str) -> GatewayReport | Missing:
        """Scrape the stats report of a gateway. It waits for no engine's scrape."""
        text = await self._get(pod, f"http://{address}{stats_report.PATH}", MAX_REPORT_BYTES)
        return text if isinstance(text, Missing) else stats_report.parse(pod, text)

    async def _get(self, pod: str, url: str, max_bytes: int) -> str | Missing:
        if self._session is None:
            self._session = pod_session()
        try:
            async with (
                asyncio.timeout(TIMEOUT_S),
                self._session.get(url, allow_redirects=False) as response,
            ):
                if response.status != 200:
                    return Missing(pod, f"status {response.status}")
                content = await read_bounded(response, max_bytes)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return Missing(pod, type(error).__name__)
        if content is None:
            return Missing(pod, f"more than {max_bytes >> 20} MiB")
        return content.decode(errors="replace")


def progress_of(text: str) -> FetchProgress | None:
    """The progress in the metrics of a container that fetches; None if they are not there, or impossible."""
    names = (
        features.FETCH_BYTES.name,
        features.FETCH_TOTAL_BYTES.name,
        features.FETCH_BYTES_PER_SECOND.name,
    )
    try:
        samples = Samples.read(text, names)
    except ValueError:
        return None
    values = [samples.sum(name) for name in names if name in samples.series]
    if len(values) < len(names) or not all(0 <= value <= MAX_VALUE for value in values):
        return None
    done, total, rate = values
    return FetchProgress(int(done), int(total), rate) if total else None


def parse(pod: str, text: str, at_s: float) -> EngineReading | Missing:
    """Parse the metrics of an engine with vLLM's metric names. An impossible value gives Missing.

    at_s: time of the scrape. Several series of one name (data-parallel ranks) are summed; the KV use is
    averaged.
    """
    try:
        samples = Samples.read(text, WANTED)
    except ValueError:
        return Missing(pod, "unreadable metrics")
    return reading_of(pod, samples, at_s, "Engine")


def reading_of(pod: str, samples: Samples, at_s: float, source: Source) -> EngineReading | Missing:
    """Convert the samples of one engine to a reading. An impossible value gives Missing, with its name."""
    try:
        return _reading(samples, at_s, source)
    except InvalidSample as error:
        return Missing(pod, str(error))


def _reading(samples: Samples, at_s: float, source: Source) -> EngineReading:
    _check(samples)
    usage = [value for _, value in samples.series[specs.KV_USAGE.name]]
    ttft_s, itl_s = (_histogram(samples, name) for name in HISTOGRAMS)

    def count(name: str) -> int:
        return int(samples.sum(name))

    return EngineReading(
        at_s=at_s,
        running=count(specs.RUNNING.name),
        waiting=count(specs.WAITING.name),
        kv_usage=sum(usage) / len(usage),
        kv_capacity_tokens=_capacity_tokens(samples),
        prefill_tokens_pending=count(specs.PREFILL_TOKENS_PENDING.name),
        prompt_tokens=count(specs.PROMPT_TOKENS.name),
        cached_tokens=count(specs.PROMPT_TOKENS_CACHED.name),
        output_tokens=count(specs.GENERATION_TOKENS.name),
        steps=count(STEPS),
        finished=count(FINISHED),
        output_tokens_finished=count(FINISHED_TOKENS),
        preemptions=count(specs.PREEMPTED.name),
        ttft_s=ttft_s,
        itl_s=itl_s,
        busy_s=samples.sum(specs.BUSY_SECONDS.name)
        if specs.BUSY_SECONDS.name in samples.series
        else None,
        corrupted=count(specs.CORRUPTED.name),
        source=source,
        max_num_seqs=count(specs.MAX_SEQS.name) or None,
        max_num_batched_tokens=count(specs.MAX_BATCHED_TOKENS.name) or None,
        cache=_cache_settings(samples),
    )


def _check(samples: Samples) -> None:
    for name in REQUIRED:
        if name not in samples.series:
            raise InvalidSample(f"{name} is absent")
    for name, series in samples.series.items():
        top = 1.0 if name == specs.KV_USAGE.name else MAX_VALUE
        for _, value in series:
            if not 0 <= value <= top:  # also for NaN
                raise InvalidSample(f"{name} is {value}")


def _capacity_tokens(samples: Samples) -> int:
    """KV cache capacity from the labels of the config metric. vLLM reports None before it has blocks."""
    total = 0
    for labels, _ in samples.series[specs.CACHE_CONFIG.name]:
        blocks = _number(label(labels, "num_gpu_blocks"))
        size = _number(label(labels, "block_size"))
        if blocks is not None and size is not None:
            total += blocks * size
    if not total:
        raise InvalidSample(f"{specs.CACHE_CONFIG.name} states no capacity")
    return total


def _cache_settings(samples: Samples) -> CacheSettings:
    """Settings of the KV cache, from the labels of the config metric."""
    labels, _ = samples.series[specs.CACHE_CONFIG.name][0]
    size, caching = label(labels, "block_size"), label(labels, "enable_prefix_caching")
    return CacheSettings(
        block_size=_number(size),
        dtype=label(labels, "cache_dtype") or None,
        prefix_caching={"True": True, "False": False}.get(caching),
    )


def _number(text: str) -> int | None:
    """Parse the whole number in a label; None if there is none, or no engine has it."""
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else None


def _histogram(samples: Samples, name: str) -> Histogram:
    try:
        buckets = samples.buckets(name)
    except ValueError as error:
        raise InvalidSample(str(error)) from error
    if buckets[-1][0] != math.inf:
        raise InvalidSample(f"{name} has no last bucket")
    counts, below = [], 0
    for _, cumulative in buckets:
        counts.append(int(cumulative) - below)
        below = int(cumulative)
    if min(counts) < 0:
        raise InvalidSample(f"{name} counts down")
    bounds = tuple(bound for bound, _ in buckets[:-1])
    return Histogram(bounds, tuple(counts), samples.sum(f"{name}_sum"))
