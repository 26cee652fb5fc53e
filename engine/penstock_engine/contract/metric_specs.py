"""Specifications of the engine's metrics: name, type, labels and buckets, each defined only once.

Those that only some engines expose are in feature_metric_specs.py.

The `vllm:` metrics have vLLM's names, types, labels and buckets, so that tools made for vLLM work.
"""

from penstock_engine.contract.metric_types import (
    BETWEEN_TOKENS_S,
    CHOICES,
    FIRST_TOKEN_S,
    LATENCY_S,
    PREEMPTIONS,
    STEP_TOKENS,
    MetricSpec,
    counter,
    gauge,
    histogram,
)

RUNNING = gauge("vllm:num_requests_running", "Number of requests in model execution batches.")
WAITING = gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.")
WAITING_BY_REASON = gauge(
    "vllm:num_requests_waiting_by_reason",
    "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling "
    "capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked "
    "status). Sum of all reasons equals vllm:num_requests_waiting.",
    extra_labels=("reason",),
    values=("capacity", "deferred"),
)
SLEEP_STATE = gauge(
    "vllm:engine_sleep_state",
    "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
    "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
    extra_labels=("sleep_state",),
    values=("awake", "discard_all", "weights_offloaded"),
)
KV_USAGE = gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.")
CACHE_CONFIG = gauge(
    "vllm:cache_config_info",
    "Information of the LLMEngine CacheConfig",
    labels=(
        "_block_size_resolved",
        "block_size",
        "cache_dtype",
        "cache_hit_alignment_tokens",
        "effective_attention_block_size",
        "enable_mamba_shared_prefix_checkpoint",
        "enable_prefix_caching",
        "engine",
        "gpu_memory_utilization",
        "hash_block_size",
        "is_attention_free",
        "kv_cache_dtype_skip_layers",
        "kv_cache_layout",
        "kv_cache_max_concurrency",
        "kv_cache_memory_bytes",
        "kv_cache_size_tokens",
        "kv_offloading_backend",
        "kv_offloading_size",
        "kv_sharing_fast_prefill",
        "mamba_block_size",
        "mamba_cache_dtype",
        "mamba_cache_mode",
        "mamba_page_size_padded",
        "mamba_ssm_cache_dtype",
        "num_cpu_blocks",
        "num_gpu_blocks",
        "num_gpu_blocks_override",
        "prefix_cache_retention_interval",
        "prefix_caching_hash_algo",
        "prefix_match_unit",
        "replayssm_buffer_len",
        "skip_page_size_padded",
        "sliding_window",
        "swa_bounded_replay",
        "use_kda_recoverssm",
        "use_replayssm",
        "user_specified_block_size",
    ),
)
PREFIX_QUERIES = counter(
    "vllm:prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens."
)
PREFIX_HITS = counter(
    "vllm:prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens."
)
EXTERNAL_PREFIX_QUERIES = counter(
    "vllm:external_prefix_cache_queries_total",
    "External prefix cache queries from KV connector cross-instance cache sharing, in terms of "
    "number of queried tokens.",
)
EXTERNAL_PREFIX_HITS = counter(
    "vllm:external_prefix_cache_hits_total",
    "External prefix cache hits from KV connector cross-instance cache sharing, in terms of "
    "number of cached tokens.",
)
MM_CACHE_QUERIES = counter(
    "vllm:mm_cache_queries_total", "Multi-modal cache queries, in terms of number of queried items."
)
MM_CACHE_HITS = counter(
    "vllm:mm_cache_hits_total", "Multi-modal cache hits, in terms of number of cached items."
)
PREEMPTED = counter(
    "vllm:num_preemptions_total", "Cumulative number of preemption from the engine."
)
PROMPT_TOKENS = counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.")
PROMPT_TOKENS_BY_SOURCE = counter(
    "vllm:prompt_tokens_by_source_total",
    "Number of prompt tokens by source.",
    extra_labels=("source",),
    values=("external_kv_transfer", "local_cache_hit", "local_compute"),
)
PROMPT_TOKENS_CACHED = counter(
    "vllm:prompt_tokens_cached_total", "Number of cached prompt tokens (local + external)."
)
PROMPT_TOKENS_CACHED_BY_SOURCE = counter(
    "vllm:prompt_tokens_cached_by_source_total",
    "Number of cached prompt tokens by where their KV cache was.",
    extra_labels=("source",),
    values=("device", "disk", "external_unspecified", "host", "p2p"),
)
GENERATION_TOKENS = counter(
    "vllm:generation_tokens_total", "Number of generation tokens processed."
)
REQUEST_SUCCESS = counter(
    "vllm:request_success_total",
    "Count of successfully processed requests.",
    extra_labels=("finished_reason",),
    values=("abort", "error", "length", "repetition", "stop"),
)
ADMISSION_REJECTIONS = counter(
    "vllm:admission_rejections_total",
    "Requests refused before they were queued.",
    labels=("model_name", "reason"),
    values=("max_num_queued_reqs", "max_num_queued_tokens"),
)
CORRUPTED = counter(
    "vllm:corrupted_requests_total",
    "Corrupted requests, in terms of total number of requests with NaNs in logits.",
)
REQUEST_PROMPT_TOKENS = histogram(
    "vllm:request_prompt_tokens", "Number of prefill tokens processed."
)
REQUEST_GENERATION_TOKENS = histogram(
    "vllm:request_generation_tokens", "Number of generation tokens processed."
)
ITERATION_TOKENS = histogram(
    "vllm:iteration_tokens_total",
    "Histogram of number of tokens per engine_step.",
    buckets=STEP_TOKENS,
)
REQUEST_MAX_GENERATION_TOKENS = histogram(
    "vllm:request_max_num_generation_tokens",
    "Histogram of maximum number of requested generation tokens.",
)
REQUEST_PARAMS_N = histogram(
    "vllm:request_params_n", "Histogram of the n request parameter.", buckets=CHOICES
)
REQUEST_PARAMS_MAX_TOKENS = histogram(
    "vllm:request_params_max_tokens", "Histogram of the max_tokens request parameter."
)
TIME_TO_FIRST_TOKEN = histogram(
    "vllm:time_to_first_token_seconds",
    "Histogram of time to first token in seconds.",
    buckets=FIRST_TOKEN_S,
)
INTER_TOKEN_LATENCY = histogram(
    "vllm:inter_token_latency_seconds",
    "Histogram of inter-token latency in seconds.",
    buckets=BETWEEN_TOKENS_S,
)
TIME_PER_OUTPUT_TOKEN = histogram(
    "vllm:request_time_per_output_token_seconds",
    "Histogram of time_per_output_token_seconds per request.",
    buckets=BETWEEN_TOKENS_S,
)
E2E_LATENCY = histogram(
    "vllm:e2e_request_latency_seconds",
    "Histogram of e2e request latency in seconds.",
    buckets=LATENCY_S,
)
QUEUE_TIME = histogram(
    "vllm:request_queue_time_seconds",
    "Histogram of time spent in WAITING phase for request.",
    buckets=LATENCY_S,
)
INFERENCE_TIME = histogram(
    "vllm:request_inference_time_seconds",
    "Histogram of time spent in RUNNING phase for request.",
    buckets=LATENCY_S,
)
PREFILL_TIME = histogram(
    "vllm:request_prefill_time_seconds",
    "Histogram of time spent in PREFILL phase for request.",
    buckets=LATENCY_S,
)
DECODE_TIME = histogram(
    "vllm:request_decode_time_seconds",
    "Histogram of time spent in DECODE phase for request.",
    buckets=LATENCY_S,
)
REQUEST_PREEMPTIONS = histogram(
    "vllm:request_num_preemptions",
    "Histogram of the number of preemptions of a request.",
    buckets=PREEMPTIONS,
)
PREFILL_COMPUTED = histogram(
    "vllm:request_prefill_kv_computed_tokens",
    "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
)
FLOPS = counter(
    "vllm:estimated_flops_per_gpu_total",
    "Estimated number of floating point operations per GPU (for Model Flops Utilization "
    "calculations).",
)
READ_BYTES = counter(
    "vllm:estimated_read_bytes_per_gpu_total",
    "Estimated number of bytes read from memory per GPU (for Model Flops Utilization "
    "calculations).",
)
WRITTEN_BYTES = counter(
    "vllm:estimated_write_bytes_per_gpu_total",
    "Estimated number of bytes written to memory per GPU (for Model Flops Utilization "
    "calculations).",
)
PREFILL_TOKENS_PENDING = gauge(
    "penstock:prefill_tokens_pending", "Prompt tokens that are accepted and not yet computed."
)
MAX_SEQS = gauge("penstock:max_num_seqs", "Maximum number of sequences that run at the same time.")
MAX_BATCHED_TOKENS = gauge(
    "penstock:max_num_batched_tokens", "Maximum number of tokens that one step computes."
)
BUSY_SECONDS = counter(
    "penstock:busy_seconds_total",
    "Seconds in which a step was computed: over the count of vllm:iteration_tokens_total, the time of "
    "one.",
)
REQUEST_TIMEOUTS = counter(
    "penstock:request_timeouts_total",
    "Requests whose deadline passed, by how far they were.",
    extra_labels=("phase",),
    values=("decode", "prefill", "queued"),
)
STARTUP_SECONDS = gauge(
    "penstock:startup_seconds",
    "Seconds that each phase of the start took: import of the program, config (and tokenizer), "
    "weights, warm_up, listen.",
    extra_labels=("phase",),
    values=("config", "import", "listen", "warm_up", "weights"),
)
KV_EXHAUSTED = counter(
    "penstock:kv_exhausted_total",
    "What was done for want of free KV blocks: requests that had to wait (wait) or were refused "
    "(reject), blocks whose contents were dropped (evict) or kept in host memory (offload), running "
    "requests that gave theirs up to compute them again (recompute).",
    extra_labels=("action",),
    values=("evict", "offload", "recompute", "reject", "wait"),
)
DRAINING = gauge("penstock:draining", "1 while the engine finishes its requests and takes no more.")
RESIDENT_MEMORY = gauge(
    "penstock:resident_memory_bytes", "Resident memory of the engine's main process."
)
STRUCTURED_ANSWERS = counter(
    "penstock:structured_answers_total",
    "Answers that a grammar constrains: complete (valid), incomplete (cut off by the length, a stop "
    "string or the client) or failed (a limit of the grammar was reached).",
    extra_labels=("outcome",),
    values=("complete", "failed", "incomplete"),
)
TOOL_PARSE_FAILURES = counter(
    "penstock:tool_parse_failures_total",
    "Answers with a tool call that the request does not allow, that is cut off, or whose arguments "
    "are not JSON.",
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
    RESIDENT_MEMORY, STRUCTURED_ANSWERS, TOOL_PARSE_FAILURES, MAX_SEQS, MAX_BATCHED_TOKENS,
)  # fmt: skip
