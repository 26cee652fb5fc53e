"""The contract with gateways, operators and dashboards: metric names, headers, stream frames.

Names, types, labels and buckets of `vllm:` metrics are vLLM's, so that what was made for vLLM works
here. This is the one place where a name is written.
"""

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

LABELS = ("engine", "model_name")

LATENCY_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
    120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
BETWEEN_TOKENS_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
CHOICES = (1, 2, 5, 10, 20)
PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)


def token_buckets(max_model_len: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50, …: as far as a request can be long."""
    buckets = []
    scale = 1
    while scale <= max_model_len:
        buckets += [m * scale for m in (1, 2, 5) if m * scale <= max_model_len]
        scale *= 10
    return tuple(buckets)


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """A metric as it is exposed. name: with `_total` where vLLM has it. buckets None: by length."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = LABELS
    buckets: tuple[float, ...] | None = None


RUNNING = MetricSpec(
    "vllm:num_requests_running", "gauge", "Number of requests in model execution batches."
)
WAITING = MetricSpec(
    "vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed."
)
WAITING_BY_REASON = MetricSpec(
    "vllm:num_requests_waiting_by_reason",
    "gauge",
    "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling "
    "capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked "
    "status). Sum of all reasons equals vllm:num_requests_waiting.",
    (*LABELS, "reason"),
)
SLEEP_STATE = MetricSpec(
    "vllm:engine_sleep_state",
    "gauge",
    "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
    "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
    (*LABELS, "sleep_state"),
)
KV_USAGE = MetricSpec(
    "vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage."
)
CACHE_CONFIG = MetricSpec(
    "vllm:cache_config_info",
    "gauge",
    "Information of the LLMEngine CacheConfig",
    (
        "_block_size_resolved", "block_size", "cache_dtype", "cache_hit_alignment_tokens",
        "effective_attention_block_size", "enable_mamba_shared_prefix_checkpoint",
        "enable_prefix_caching", "engine", "gpu_memory_utilization", "hash_block_size",
        "is_attention_free", "kv_cache_dtype_skip_layers", "kv_cache_layout",
        "kv_cache_max_concurrency", "kv_cache_memory_bytes", "kv_cache_size_tokens",
        "kv_offloading_backend", "kv_offloading_size", "kv_sharing_fast_prefill",
        "mamba_block_size", "mamba_cache_dtype", "mamba_cache_mode", "mamba_page_size_padded",
        "mamba_ssm_cache_dtype", "num_cpu_blocks", "num_gpu_blocks", "num_gpu_blocks_override",
        "prefix_cache_retention_interval", "prefix_caching_hash_algo", "prefix_match_unit",
        "replayssm_buffer_len", "skip_page_size_padded", "sliding_window", "swa_bounded_replay",
        "use_kda_recoverssm", "use_replayssm", "user_specified_block_size",
    ),
)  # fmt: skip
PREFIX_QUERIES = MetricSpec(
    "vllm:prefix_cache_queries_total",
    "counter",
    "Prefix cache queries, in terms of number of queried tokens.",
)
PREFIX_HITS = MetricSpec(
    "vllm:prefix_cache_hits_total",
    "counter",
    "Prefix cache hits, in terms of number of cached tokens.",
)
EXTERNAL_PREFIX_QUERIES = MetricSpec(
    "vllm:external_prefix_cache_queries_total",
    "counter",
    "External prefix cache queries from KV connector cross-instance cache sharing, in terms of "
    "number of queried tokens.",
)
EXTERNAL_PREFIX_HITS = MetricSpec(
    "vllm:external_prefix_cache_hits_total",
    "counter",
    "External prefix cache hits from KV connector cross-instance cache sharing, in terms of "
    "number of cached tokens.",
)
MM_CACHE_QUERIES = MetricSpec(
    "vllm:mm_cache_queries_total",
    "counter",
    "Multi-modal cache queries, in terms of number of queried items.",
)
MM_CACHE_HITS = MetricSpec(
    "vllm:mm_cache_hits_total",
    "counter",
    "Multi-modal cache hits, in terms of number of cached items.",
)
PREEMPTED = MetricSpec(
    "vllm:num_preemptions_total", "counter", "Cumulative number of preemption from the engine."
)
PROMPT_TOKENS = MetricSpec(
    "vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed."
)
PROMPT_TOKENS_BY_SOURCE = MetricSpec(
    "vllm:prompt_tokens_by_source_total",
    "counter",
    "Number of prompt tokens by source.",
    (*LABELS, "source"),
)
PROMPT_TOKENS_CACHED = MetricSpec(
    "vllm:prompt_tokens_cached_total",
    "counter",
    "Number of cached prompt tokens (local + external).",
)
PROMPT_TOKENS_CACHED_BY_SOURCE = MetricSpec(
    "vllm:prompt_tokens_cached_by_source_total",
    "counter",
    "Number of cached prompt tokens by where their KV cache was.",
    (*LABELS, "source"),
)
GENERATION_TOKENS = MetricSpec(
    "vllm:generation_tokens_total", "counter", "Number of generation tokens processed."
)
REQUEST_SUCCESS = MetricSpec(
    "vllm:request_success_total",
    "counter",
    "Count of successfully processed requests.",
    (*LABELS, "finished_reason"),
)
ADMISSION_REJECTIONS = MetricSpec(
    "vllm:admission_rejections_total",
    "counter",
    "Requests refused before they were queued.",
    ("model_name", "reason"),
)
CORRUPTED = MetricSpec(
    "vllm:corrupted_requests_total",
    "counter",
    "Corrupted requests, in terms of total number of requests with NaNs in logits.",
)
REQUEST_PROMPT_TOKENS = MetricSpec(
    "vllm:request_prompt_tokens", "histogram", "Number of prefill tokens processed."
)
REQUEST_GENERATION_TOKENS = MetricSpec(
    "vllm:request_generation_tokens", "histogram", "Number of generation tokens processed."
)
ITERATION_TOKENS = MetricSpec(
    "vllm:iteration_tokens_total",
    "histogram",
    "Histogram of number of tokens per engine_step.",
    buckets=STEP_TOKENS,
)
REQUEST_MAX_GENERATION_TOKENS = MetricSpec(
    "vllm:request_max_num_generation_tokens",
    "histogram",
    "Histogram of maximum number of requested generation tokens.",
)
REQUEST_PARAMS_N = MetricSpec(
    "vllm:request_params_n",
    "histogram",
    "Histogram of the n request parameter.",
    buckets=CHOICES,
)
REQUEST_PARAMS_MAX_TOKENS = MetricSpec(
    "vllm:request_params_max_tokens",
    "histogram",
    "Histogram of the max_tokens request parameter.",
)
TIME_TO_FIRST_TOKEN = MetricSpec(
    "vllm:time_to_first_token_seconds",
    "histogram",
    "Histogram of time to first token in seconds.",
    buckets=FIRST_TOKEN_S,
)
INTER_TOKEN_LATENCY = MetricSpec(
    "vllm:inter_token_latency_seconds",
    "histogram",
    "Histogram of inter-token latency in seconds.",
    buckets=BETWEEN_TOKENS_S,
)
TIME_PER_OUTPUT_TOKEN = MetricSpec(
    "vllm:request_time_per_output_token_seconds",
    "histogram",
    "Histogram of time_per_output_token_seconds per request.",
    buckets=BETWEEN_TOKENS_S,
)
E2E_LATENCY = MetricSpec(
    "vllm:e2e_request_latency_seconds",
    "histogram",
    "Histogram of e2e request latency in seconds.",
    buckets=LATENCY_S,
)
QUEUE_TIME = MetricSpec(
    "vllm:request_queue_time_seconds",
    "histogram",
    "Histogram of time spent in WAITING phase for request.",
    buckets=LATENCY_S,
)
INFERENCE_TIME = MetricSpec(
    "vllm:request_inference_time_seconds",
    "histogram",
    "Histogram of time spent in RUNNING phase for request.",
    buckets=LATENCY_S,
)
PREFILL_TIME = MetricSpec(
    "vllm:request_prefill_time_seconds",
    "histogram",
    "Histogram of time spent in PREFILL phase for request.",
    buckets=LATENCY_S,
)
DECODE_TIME = MetricSpec(
    "vllm:request_decode_time_seconds",
    "histogram",
    "Histogram of time spent in DECODE phase for request.",
    buckets=LATENCY_S,
)
REQUEST_PREEMPTIONS = MetricSpec(
    "vllm:request_num_preemptions",
    "histogram",
    "Histogram of the number of preemptions of a request.",
    buckets=PREEMPTIONS,
)
PREFILL_COMPUTED = MetricSpec(
    "vllm:request_prefill_kv_computed_tokens",
    "histogram",
    "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
)
SPEC_DRAFTS = MetricSpec(
    "vllm:spec_decode_num_drafts_total", "counter", "Number of spec decoding drafts."
)
SPEC_DRAFT_TOKENS = MetricSpec(
    "vllm:spec_decode_num_draft_tokens_total", "counter", "Number of draft tokens."
)
SPEC_ACCEPTED_TOKENS = MetricSpec(
    "vllm:spec_decode_num_accepted_tokens_total", "counter", "Number of accepted tokens."
)
SPEC_ACCEPTED_BY_POSITION = MetricSpec(
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    "counter",
    "Accepted tokens per draft position.",
    (*LABELS, "position"),
)
FLOPS = MetricSpec(
    "vllm:estimated_flops_per_gpu_total",
    "counter",
    "Estimated number of floating point operations per GPU (for Model Flops Utilization "
    "calculations).",
)
READ_BYTES = MetricSpec(
    "vllm:estimated_read_bytes_per_gpu_total",
    "counter",
    "Estimated number of bytes read from memory per GPU (for Model Flops Utilization "
    "calculations).",
)
WRITTEN_BYTES = MetricSpec(
    "vllm:estimated_write_bytes_per_gpu_total",
    "counter",
    "Estimated number of bytes written to memory per GPU (for Model Flops Utilization "
    "calculations).",
)
PREFILL_TOKENS_PENDING = MetricSpec(
    "penstock:prefill_tokens_pending",
    "gauge",
    "Prompt tokens that are accepted and not yet computed.",
)
BUSY_SECONDS = MetricSpec(
    "penstock:busy_seconds_total",
    "counter",
    "Seconds in which a step was computed: over the count of vllm:iteration_tokens_total, the time of "
    "one.",
)
REQUEST_TIMEOUTS = MetricSpec(
    "penstock:request_timeouts_total",
    "counter",
    "Requests whose deadline passed, by how far they were.",
    (*LABELS, "phase"),
)
STARTUP_SECONDS = MetricSpec(
    "penstock:startup_seconds",
    "gauge",
    "Seconds that each phase of the start took: import of the program, config (and tokenizer), "
    "weights, warm_up, listen.",
    (*LABELS, "phase"),
)
KV_EXHAUSTED = MetricSpec(
    "penstock:kv_exhausted_total",
    "counter",
    "What was done for want of free KV blocks: requests that had to wait (wait) or were refused "
    "(reject), blocks whose contents were dropped (evict) or kept in host memory (offload), running "
    "requests that gave theirs up to compute them again (recompute).",
    (*LABELS, "action"),
)
KV_COPY_CHOICES = MetricSpec(
    "penstock:kv_copy_choices_total",
    "counter",
    "Choices between copying a block and computing it again, with host memory for KV blocks: of "
    "evicted blocks save or drop, of prefixes found in the host restore or compute; because it is "
    "cheaper by what steps have taken, because that is still unmeasured, or as a probe of the price.",
    (*LABELS, "choice", "reason"),
)
DRAINING = MetricSpec(
    "penstock:draining", "gauge", "1 while the engine finishes its requests and takes no more."
)

CPU_THREADS = MetricSpec(
    "penstock:cpu_threads",
    "gauge",
    "Number of threads that compute steps on the CPU. Lower while other programs use its cores.",
)

METRICS: tuple[MetricSpec, ...] = (
    RUNNING, WAITING, WAITING_BY_REASON, SLEEP_STATE, KV_USAGE, CACHE_CONFIG, PREFIX_QUERIES,
    PREFIX_HITS, EXTERNAL_PREFIX_QUERIES, EXTERNAL_PREFIX_HITS, MM_CACHE_QUERIES, MM_CACHE_HITS,
    PREEMPTED, PROMPT_TOKENS, PROMPT_TOKENS_BY_SOURCE, PROMPT_TOKENS_CACHED,
    PROMPT_TOKENS_CACHED_BY_SOURCE, GENERATION_TOKENS, REQUEST_SUCCESS, ADMISSION_REJECTIONS, CORRUPTED,
    REQUEST_PROMPT_TOKENS, REQUEST_GENERATION_TOKENS, ITERATION_TOKENS,
    REQUEST_MAX_GENERATION_TOKENS, REQUEST_PARAMS_N, REQUEST_PARAMS_MAX_TOKENS,
    TIME_TO_FIRST_TOKEN, INTER_TOKEN_LATENCY, TIME_PER_OUTPUT_TOKEN, E2E_LATENCY, QUEUE_TIME,
    INFERENCE_TIME, PREFILL_TIME, DECODE_TIME, REQUEST_PREEMPTIONS, PREFILL_COMPUTED,
    FLOPS, READ_BYTES, WRITTEN_BYTES,
    KV_EXHAUSTED, PREFILL_TOKENS_PENDING, BUSY_SECONDS, REQUEST_TIMEOUTS, STARTUP_SECONDS, DRAINING,
)  # fmt: skip

LORA_INFO = MetricSpec(
    "vllm:lora_requests_info",
    "gauge",
    "Running stats on lora requests.",
    ("max_lora", "running_lora_adapters", "waiting_lora_adapters"),
)
LORA_RESIDENT = MetricSpec(
    "penstock:lora_resident", "gauge", "1 while the adapter is in memory.", (*LABELS, "adapter")
)
ADAPTER_REQUESTS = MetricSpec(
    "penstock:adapter_requests_total",
    "counter",
    "Requests that ended, by adapter and reason.",
    (*LABELS, "adapter", "finished_reason"),
)
ADAPTER_TOKENS = MetricSpec(
    "penstock:adapter_tokens_total",
    "counter",
    "Prompt and generated tokens of requests that ended, by adapter.",
    (*LABELS, "adapter", "kind"),
)

# Exposed only by an engine that serves adapters; a series exists from an adapter's first event on.
ADAPTER_METRICS: tuple[MetricSpec, ...] = (
    LORA_INFO, LORA_RESIDENT, ADAPTER_REQUESTS, ADAPTER_TOKENS,
)  # fmt: skip

# Exposed only by an engine that has host memory for KV blocks; a series exists from its first choice.
OFFLOADING_METRICS: tuple[MetricSpec, ...] = (KV_COPY_CHOICES,)

# Exposed only by an engine that computes on the CPU.
CPU_METRICS: tuple[MetricSpec, ...] = (CPU_THREADS,)

# Exposed only by an engine that speculates, as vLLM does.
SPECULATION_METRICS: tuple[MetricSpec, ...] = (
    SPEC_DRAFTS, SPEC_DRAFT_TOKENS, SPEC_ACCEPTED_TOKENS, SPEC_ACCEPTED_BY_POSITION,
)  # fmt: skip

# Values that a label takes, so that every series exists from the start.
LABEL_VALUES: dict[str, tuple[str, ...]] = {
    KV_EXHAUSTED.name: ("evict", "offload", "recompute", "reject", "wait"),
    WAITING_BY_REASON.name: ("capacity", "deferred"),
    SLEEP_STATE.name: ("awake", "discard_all", "weights_offloaded"),
    PROMPT_TOKENS_CACHED_BY_SOURCE.name: ("device", "disk", "external_unspecified", "host", "p2p"),
    PROMPT_TOKENS_BY_SOURCE.name: ("external_kv_transfer", "local_cache_hit", "local_compute"),
    REQUEST_SUCCESS.name: ("abort", "error", "length", "repetition", "stop"),
    REQUEST_TIMEOUTS.name: ("decode", "prefill", "queued"),
    STARTUP_SECONDS.name: ("config", "import", "listen", "warm_up", "weights"),
    ADMISSION_REJECTIONS.name: ("max_num_queued_reqs", "max_num_queued_tokens"),
}

REQUEST_ID_HEADER = "x-request-id"
# Accepted request ids. The gateway, or an engine without one, replaces any other.
REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
# How long the client waits for the whole answer: in seconds, which may have decimals.
TIMEOUT_HEADER = "x-request-timeout-s"
# The same as Envoy, and the gateways built on it, tell it: in milliseconds.
ENVOY_TIMEOUT_HEADER = "x-envoy-expected-rq-timeout-ms"
# How long the tokens of the answer may be apart while others' prompts are computed, in seconds: a gateway
# tells engines the service's objective.
TPOT_HEADER = "x-penstock-tpot-s"

SSE_PREFIX = b"data: "
SSE_END = b"\n\n"
SSE_DONE = b"data: [DONE]\n\n"
