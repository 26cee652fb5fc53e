"""Prometheus metrics of the engine, updated by step reports and events of sequences."""

from collections.abc import Mapping
from contextlib import suppress
from itertools import zip_longest
from typing import Any, Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)

from penstock_engine.contract import feature_metric_specs as features
from penstock_engine.contract import metric_specs
from penstock_engine.contract.metric_types import MetricSpec, token_buckets
from penstock_engine.core.events import FinishReason, TokenEvent
from penstock_engine.core.stats import SchedulerStats
from penstock_engine.loop.engine_loop import StepReport
from penstock_engine.machine.device import GpuReading, gpu_readings, resident_bytes
from penstock_engine.memory.plan import MemoryPlan
from penstock_engine.models.step_cost import StepCostModel
from penstock_engine.options.config import EngineConfig
from penstock_engine.server.metrics.cache_config import ENGINE_INDEX, cache_config_labels
from penstock_engine.server.metrics.request_record import RequestRecord
from penstock_engine.server.metrics.step_counters import COUNTERS
from penstock_engine.server.transport.deadlines import Phase, phase_of
from penstock_engine.telemetry.exposition import exemplar, render

StructuredOutcome = Literal["complete", "failed", "incomplete"]

# The contract has no `_created` series.
disable_created_metrics()  # type: ignore[no-untyped-call]

# Label of the admission metric for sequences that the scheduler rejects; they have no latencies.
REJECTED = {"queue_full": "max_num_queued_reqs"}


class EngineMetrics:
    """A registry with all metrics of this engine. All series whose labels are known exist from the start."""

    def __init__(self, model_name: str, config: EngineConfig, memory_plan: MemoryPlan) -> None:
        self.registry = CollectorRegistry()
        self._labels = {"engine": ENGINE_INDEX, "model_name": model_name}
        specs = metric_specs.METRICS
        if config.speculative_config is not None:
            specs += features.SPECULATION_METRICS
        self._max_adapters = config.max_adapters
        if config.enable_lora:
            specs += features.ADAPTER_METRICS
        if memory_plan.num_host_blocks:
            specs += features.OFFLOADING_METRICS
        if config.block_events:
            specs += features.KV_EVENT_METRICS
        self._num_gpus = 0
        if memory_plan.device == "cpu":
            specs += features.CPU_METRICS
        else:
            self._num_gpus = config.layout.num_ranks
            specs += features.GPU_METRICS
        self._metrics = {spec.name: self._make(spec, memory_plan.max_model_len) for spec in specs}
        for position in range(config.num_drafts):
            self._child(features.SPEC_ACCEPTED_BY_POSITION, position=str(position))
        # On a CPU, sizes are summed over all ranks; on GPUs, `memory_plan` has those of the largest rank.
        num_parts = 1 if memory_plan.device == "cpu" else config.layout.num_ranks
        self._step_costs = StepCostModel(
            memory_plan.model,
            memory_plan.weights_bytes * num_parts,
            memory_plan.kv_bytes_per_token * num_parts,
            config.layout.num_ranks,
        )
        self._stats: SchedulerStats | None = None
        self.set_sleep(None)
        labels = cache_config_labels(config, memory_plan)
        self._metrics[metric_specs.CACHE_CONFIG.name].labels(**labels).set(1)
        self._child(metric_specs.MAX_SEQS).set(memory_plan.max_num_seqs)
        self._child(metric_specs.MAX_BATCHED_TOKENS).set(memory_plan.max_num_batched_tokens)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Returns all metrics as text, and its content type. accept: header of the request."""
        with suppress(OSError):  # only Linux reports it
            self._child(metric_specs.RESIDENT_MEMORY).set(resident_bytes())
        for index, gpu in enumerate(gpu_readings(self._num_gpus)):
            self._observe_gpu(str(index), gpu)
        return render(self.registry, accept)

    def _observe_gpu(self, gpu: str, reading: GpuReading) -> None:
        self._child(features.GPU_MEMORY_USED, gpu=gpu).set(reading.used_bytes)
        self._child(features.GPU_MEMORY_TOTAL, gpu=gpu).set(reading.total_bytes)
        if reading.utilization is not None:
            self._child(features.GPU_UTILIZATION, gpu=gpu).set(reading.utilization)

    def set_startup(self, phases_s: Mapping[str, float]) -> None:
        for phase, seconds in phases_s.items():
            self._child(metric_specs.STARTUP_SECONDS, phase=phase).set(seconds)

    def set_cpu_threads(self, count: int) -> None:
        """Sets the number of CPU threads. Only for CPU engines. Thread-safe."""
        self._child(features.CPU_THREADS).set(count)

    def observe_kv_event_batch(self, outcome: str) -> None:
        """Counts a batch of block events. Thread-safe."""
        self._child(features.KV_EVENT_BATCHES, outcome=outcome).inc()

    def set_draining(self) -> None:
        self._child(metric_specs.DRAINING).set(1)

    def set_sleep(self, level: Literal[1, 2] | None) -> None:
        """Sets the sleep level. level: 1 (weights stay in the page cache), 2 (discarded), None (awake)."""
        for state, own in (("awake", None), ("weights_offloaded", 1), ("discard_all", 2)):
            self._child(metric_specs.SLEEP_STATE, sleep_state=state).set(level == own)

    def set_adapter(self, name: str, *, in_memory: bool) -> None:
        """Sets whether an adapter is in memory. name: of a registered adapter."""
        self._child(features.LORA_RESIDENT, adapter=name).set(in_memory)

    def remove_adapter(self, name: str) -> None:
        """Removes the series of an adapter that is no longer registered."""
        for spec in features.ADAPTER_METRICS:
            if "adapter" in spec.labels:
                self._metrics[spec.name].remove_by_labels(self._labels | {"adapter": name})

    def observe_timeout(self, record: RequestRecord, phase: Phase) -> None:
        record.timeout_phase = phase
        self._child(metric_specs.REQUEST_TIMEOUTS, phase=phase).inc()

    def observe_structured(self, outcome: StructuredOutcome | None) -> None:
        """Counts the end of an answer with a grammar. outcome: None if the grammar had no part in it."""
        if outcome is not None:
            self._child(metric_specs.STRUCTURED_ANSWERS, outcome=outcome).inc()

    def observe_failed_call(self) -> None:
        """Counts an answer with a tool call that was none, was cut off or is not JSON. Thread-safe."""
        self._child(metric_specs.TOOL_PARSE_FAILURES).inc()

    def observe_rejection(self, reason: str) -> None:
        self._child(metric_specs.ADMISSION_REJECTIONS, reason=reason).inc()

    def observe_step(self, report: StepReport) -> None:
        stats, before = report.stats, self._stats
        self._child(metric_specs.RUNNING).set(stats.running)
        self._child(metric_specs.WAITING).set(stats.waiting)
        self._child(metric_specs.WAITING_BY_REASON, reason="capacity").set(
            stats.waiting - stats.deferred
        )
        self._child(metric_specs.WAITING_BY_REASON, reason="deferred").set(stats.deferred)
        self._child(metric_specs.KV_USAGE).set(stats.kv_usage)
        self._child(metric_specs.PREFILL_TOKENS_PENDING).set(stats.prefill_tokens_pending)
        if report.num_scheduled_tokens:
            self._child(metric_specs.ITERATION_TOKENS).observe(_iteration_tokens(stats, before))
            work = self._step_costs.estimate(report.sequences)
            self._child(metric_specs.FLOPS).inc(work.flops)
            self._child(metric_specs.READ_BYTES).inc(work.read_bytes)
            self._child(metric_specs.WRITTEN_BYTES).inc(work.written_bytes)
        for spec, labels, field in COUNTERS:
            gained = getattr(stats, field) - (getattr(before, field) if before else 0)
            if gained:
                self._child(spec, **labels).inc(gained)
        right = zip_longest(
            stats.accepted_by_position,
            before.accepted_by_position if before else (),
            fillvalue=0,
        )
        for position, (now_right, before_right) in enumerate(right):
            gained = now_right - before_right
            self._child(features.SPEC_ACCEPTED_TOKENS).inc(gained)
            self._child(features.SPEC_ACCEPTED_BY_POSITION, position=str(position)).inc(gained)
        chosen_before = dict(before.copy_choices) if before else {}
        for choice, count in stats.copy_choices:
            gained = count - chosen_before.get(choice, 0)
            self._child(features.KV_COPY_CHOICES, choice=choice.action, reason=choice.reason).inc(
                gained
            )
        if self._max_adapters:
            self._observe_adapters(stats)
        self._stats = stats

    def _observe_adapters(self, stats: SchedulerStats) -> None:
        """Sets vLLM's lora_requests_info: adapter names as labels, the current time as value."""
        info = self._metrics[features.LORA_INFO.name]
        info.clear()
        info.labels(
            max_lora=str(self._max_adapters),
            running_lora_adapters=",".join(map(_adapter_name, stats.running_adapters)),
            waiting_lora_adapters=",".join(map(_adapter_name, stats.waiting_adapters)),
        ).set_to_current_time()

    def observe_event(self, event: TokenEvent, record: RequestRecord) -> None:
        if event.token_ids:
            if record.last_token_s is None:
                self._child(metric_specs.TIME_TO_FIRST_TOKEN).observe(
                    event.now_s - record.arrival_s, exemplar(record.trace_id)
                )
            else:
                self._child(metric_specs.INTER_TOKEN_LATENCY).observe(
                    event.now_s - record.last_token_s
                )
            record.last_token_s = event.now_s
        if event.finish_reason == "abort" and record.is_past_deadline(event.now_s):
            self.observe_timeout(record, phase_of(event))
        if event.failure == "nan_output":
            self._child(metric_specs.CORRUPTED).inc()
        if event.finish_reason is not None:
            self._observe_end(event, record, event.finish_reason)

    def _observe_end(
        self, event: TokenEvent, record: RequestRecord, finish_reason: FinishReason
    ) -> None:
        num_tokens = 0
        if event.failure in REJECTED:
            self.observe_rejection(REJECTED[event.failure])
        else:
            reason = "stop" if record.is_stopped else finish_reason
            self._child(metric_specs.REQUEST_SUCCESS, finished_reason=reason).inc()
            if record.adapter:
                self._observe_adapter_finished(event, record.adapter, reason)
            if reason in ("stop", "length"):
                self._observe_finished(event, record)
                num_tokens = event.num_output_tokens
        longest = record.choices.end(num_tokens)
        if longest:
            labels = exemplar(record.trace_id)
            self._child(metric_specs.REQUEST_PARAMS_N).observe(record.choices.number, labels)
            self._child(metric_specs.REQUEST_MAX_GENERATION_TOKENS).observe(longest, labels)

    def _observe_adapter_finished(self, event: TokenEvent, adapter: str, reason: str) -> None:
        self._child(features.ADAPTER_REQUESTS, adapter=adapter, finished_reason=reason).inc()
        for kind, count in (
            ("prompt", event.num_prompt_tokens),
            ("generation", event.num_output_tokens),
        ):
            self._child(features.ADAPTER_TOKENS, adapter=adapter, kind=kind).inc(count)

    def _observe_finished(self, event: TokenEvent, record: RequestRecord) -> None:
        assert event.scheduled_s is not None, "a sequence that ended well was never scheduled"
        assert event.first_token_s is not None, "a sequence that ended well has no token"
        assert record.last_token_s is not None, "a sequence that ended well has no last token"
        decode_s = record.last_token_s - event.first_token_s
        trace_labels = exemplar(record.trace_id)
        for spec, value in (
            (metric_specs.E2E_LATENCY, record.last_token_s - record.arrival_s),
            (metric_specs.QUEUE_TIME, event.scheduled_s - event.queued_s),
            (metric_specs.INFERENCE_TIME, record.last_token_s - event.scheduled_s),
            (metric_specs.PREFILL_TIME, event.first_token_s - event.scheduled_s),
            (metric_specs.DECODE_TIME, decode_s),
            (metric_specs.REQUEST_PROMPT_TOKENS, event.num_prompt_tokens),
            (metric_specs.REQUEST_GENERATION_TOKENS, event.num_output_tokens),
            (metric_specs.PREFILL_COMPUTED, event.prefill_kv_computed_tokens),
            (metric_specs.REQUEST_PREEMPTIONS, event.preemptions),
            (metric_specs.REQUEST_PARAMS_MAX_TOKENS, record.max_tokens),
        ):
            self._child(spec).observe(value, trace_labels)
        if event.num_output_tokens > 1:
            self._child(metric_specs.TIME_PER_OUTPUT_TOKEN).observe(
                decode_s / (event.num_output_tokens - 1), trace_labels
            )

    def _child(self, spec: MetricSpec, **labels: str) -> Any:
        own = {name: value for name, value in self._labels.items() if name in spec.labels}
        return self._metrics[spec.name].labels(**own, **labels)

    def _make(self, spec: MetricSpec, max_model_len: int) -> Any:
        if spec.kind == "histogram":
            buckets = spec.buckets or token_buckets(max_model_len)
            metric: Any = Histogram(
                spec.name, spec.help, spec.labels, registry=self.registry, buckets=buckets
            )
        elif spec.kind == "counter":
            name = spec.name.removesuffix("_total")  # prometheus_client puts it back
            metric = Counter(name, spec.help, spec.labels, registry=self.registry)
        else:
            metric = Gauge(spec.name, spec.help, spec.labels, registry=self.registry)
        own = {name: value for name, value in self._labels.items() if name in spec.labels}
        extra = [name for name in spec.labels if name not in own]
        for value in spec.values if extra else ("",):
            metric.labels(**own, **dict.fromkeys(extra, value))
        return metric


def _iteration_tokens(stats: SchedulerStats, before: SchedulerStats | None) -> int:
    """Returns the tokens of a step as vLLM counts them.

    These are the generated tokens, and all prompt tokens (cached ones too) of sequences whose prefill
    ended in the step.
    """
    fields = ("prompt_tokens_cached", "prompt_tokens_computed", "generation_tokens")
    return sum(getattr(stats, name) - getattr(before, name, 0) for name in fields)


def _adapter_name(identity: str) -> str:
    """Returns the name in an adapter's identity (adapters/registry.py), which is `name#number`."""
    return identity.rpartition("#")[0]
