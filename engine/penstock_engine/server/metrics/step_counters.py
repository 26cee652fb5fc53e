"""The counters that follow the scheduler's statistics."""

from penstock_engine.contract import feature_metric_specs as features
from penstock_engine.contract import metric_specs
from penstock_engine.contract.metric_types import MetricSpec

# Metric, its labels, and the field of SchedulerStats that it counts.
COUNTERS: tuple[tuple[MetricSpec, dict[str, str], str], ...] = (
    (metric_specs.PREFIX_QUERIES, {}, "prefix_queries_tokens"),
    (metric_specs.PREFIX_HITS, {}, "prefix_hits_tokens"),
    (metric_specs.PREEMPTED, {}, "preemptions"),
    (metric_specs.GENERATION_TOKENS, {}, "generation_tokens"),
    (metric_specs.PROMPT_TOKENS, {}, "prompt_tokens_cached"),
    (metric_specs.PROMPT_TOKENS, {}, "prompt_tokens_computed"),
    (metric_specs.PROMPT_TOKENS_BY_SOURCE, {"source": "local_compute"}, "prompt_tokens_computed"),
    (metric_specs.PROMPT_TOKENS_BY_SOURCE, {"source": "local_cache_hit"}, "prompt_tokens_cached"),
    (metric_specs.PROMPT_TOKENS_CACHED, {}, "prompt_tokens_cached"),
    (
        metric_specs.PROMPT_TOKENS_CACHED_BY_SOURCE,
        {"source": "device"},
        "prompt_tokens_from_device",
    ),
    (metric_specs.PROMPT_TOKENS_CACHED_BY_SOURCE, {"source": "host"}, "prompt_tokens_from_host"),
    (metric_specs.KV_EXHAUSTED, {"action": "wait"}, "waits_for_blocks"),
    (metric_specs.KV_EXHAUSTED, {"action": "reject"}, "rejections"),
    (metric_specs.KV_EXHAUSTED, {"action": "recompute"}, "preemptions"),
    (metric_specs.KV_EXHAUSTED, {"action": "evict"}, "dropped_blocks"),
    (metric_specs.KV_EXHAUSTED, {"action": "offload"}, "saved_blocks"),
    (metric_specs.BUSY_SECONDS, {}, "busy_s"),
    (features.SPEC_DRAFTS, {}, "drafts"),
    (features.SPEC_DRAFT_TOKENS, {}, "draft_tokens"),
)
