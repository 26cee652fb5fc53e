"""Specifications of metrics of a fetch, and of those that depend on an engine's features or device."""

from penstock_engine.contract.metric_types import MetricSpec, counter, gauge

LORA_INFO = gauge(
    "vllm:lora_requests_info",
    "Running stats on lora requests.",
    labels=("max_lora", "running_lora_adapters", "waiting_lora_adapters"),
)
LORA_RESIDENT = gauge(
    "penstock:lora_resident",
    "1 while the adapter is in memory, 0 after it was evicted.",
    extra_labels=("adapter",),
)
ADAPTER_REQUESTS = counter(
    "penstock:adapter_requests_total",
    "Requests that ended, by adapter and reason.",
    extra_labels=("adapter", "finished_reason"),
)
ADAPTER_TOKENS = counter(
    "penstock:adapter_tokens_total",
    "Prompt and generated tokens of requests that ended, by adapter.",
    extra_labels=("adapter", "kind"),
)

# Exposed only by an engine that serves adapters. A series exists from the first event of its adapter.
ADAPTER_METRICS: tuple[MetricSpec, ...] = (
    LORA_INFO, LORA_RESIDENT, ADAPTER_REQUESTS, ADAPTER_TOKENS,
)  # fmt: skip

KV_COPY_CHOICES = counter(
    "penstock:kv_copy_choices_total",
    "Choices between copying a block and computing it again, with host memory for KV blocks: of "
    "evicted blocks save or drop, of prefixes found in the host restore or compute; because it is "
    "cheaper by what steps have taken, because that is still unmeasured, or as a probe of the price.",
    extra_labels=("choice", "reason"),
)

# Exposed only by an engine with host memory for KV blocks. A series exists from its first choice.
OFFLOADING_METRICS: tuple[MetricSpec, ...] = (KV_COPY_CHOICES,)

KV_EVENT_BATCHES = counter(
    "penstock:kv_event_batches_total",
    "Batches of block events of --kv-events-config by outcome: published, or dropped because the queue "
    "was full.",
    extra_labels=("outcome",),
    values=("published", "dropped"),
)

# Exposed only by an engine that publishes block events.
KV_EVENT_METRICS: tuple[MetricSpec, ...] = (KV_EVENT_BATCHES,)

CPU_THREADS = gauge(
    "penstock:cpu_threads",
    "Number of threads that compute steps on the CPU. Lower while other programs use its cores.",
)

# Exposed only by an engine that computes on the CPU.
CPU_METRICS: tuple[MetricSpec, ...] = (CPU_THREADS,)

GPU_MEMORY_USED = gauge(
    "penstock:gpu_memory_used_bytes",
    "Memory of the GPU that is in use, by any process. Of several GPUs only the first without NVML.",
    extra_labels=("gpu",),
)
GPU_MEMORY_TOTAL = gauge(
    "penstock:gpu_memory_total_bytes", "Memory of the GPU.", extra_labels=("gpu",)
)
GPU_UTILIZATION = gauge(
    "penstock:gpu_utilization_ratio",
    "Fraction of the last second or less in which a kernel ran on the GPU. Only with NVML.",
    extra_labels=("gpu",),
)

# Exposed only by an engine that computes on GPUs. A series exists for each GPU that it sees.
GPU_METRICS: tuple[MetricSpec, ...] = (GPU_MEMORY_USED, GPU_MEMORY_TOTAL, GPU_UTILIZATION)

SPEC_DRAFTS = counter("vllm:spec_decode_num_drafts_total", "Number of spec decoding drafts.")
SPEC_DRAFT_TOKENS = counter("vllm:spec_decode_num_draft_tokens_total", "Number of draft tokens.")
SPEC_ACCEPTED_TOKENS = counter(
    "vllm:spec_decode_num_accepted_tokens_total", "Number of accepted tokens."
)
SPEC_ACCEPTED_BY_POSITION = counter(
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    "Accepted tokens per draft position.",
    extra_labels=("position",),
)

# Exposed only by an engine that speculates, as vLLM does.
SPECULATION_METRICS: tuple[MetricSpec, ...] = (
    SPEC_DRAFTS, SPEC_DRAFT_TOKENS, SPEC_ACCEPTED_TOKENS, SPEC_ACCEPTED_BY_POSITION,
)  # fmt: skip

FETCH_BYTES = gauge(
    "penstock:model_fetch_bytes",
    "Bytes of the files to fetch that were downloaded, also by an earlier fetch that was interrupted.",
    labels=(),
)
FETCH_TOTAL_BYTES = gauge(
    "penstock:model_fetch_total_bytes",
    "Bytes of the files to fetch, without those that the cache has. 0 until the source has listed them.",
    labels=(),
)
FETCH_DOWNLOADED_BYTES = counter(
    "penstock:model_fetch_downloaded_bytes_total",
    "Bytes that were received over the network, also those that were fetched twice.",
    labels=(),
)
FETCH_BYTES_PER_SECOND = gauge(
    "penstock:model_fetch_bytes_per_second",
    "Bytes per second over the network in the last 30 s.",
    labels=(),
)

# Exposed only by `penstock-engine fetch` with a port, while it runs.
FETCH_METRICS: tuple[MetricSpec, ...] = (
    FETCH_BYTES, FETCH_TOTAL_BYTES, FETCH_DOWNLOADED_BYTES, FETCH_BYTES_PER_SECOND,
)  # fmt: skip
