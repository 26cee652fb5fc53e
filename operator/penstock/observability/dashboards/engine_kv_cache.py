"""Rows of the engine dashboard about the KV cache, on the device and in host memory."""

from grafana_foundation_sdk.models import units

from penstock.observability.dashboards.board import Row
from penstock.observability.dashboards.engine_queries import POD, rate_by
from penstock.observability.dashboards.panels import fractions, series
from penstock.observability.dashboards.promql import ENGINES, ratio
from penstock_engine.contract import feature_metric_specs as features
from penstock_engine.contract import metric_specs as engine


def kv_cache() -> Row:
    hits = ratio(
        ENGINES.rate(engine.PREFIX_HITS, "pod"), ENGINES.rate(engine.PREFIX_QUERIES, "pod")
    )
    return Row(
        "KV cache",
        fractions(
            "KV cache use",
            "Fraction of the KV cache blocks in use.",
            (ENGINES.sum(engine.KV_USAGE, "pod"), POD),
        ),
        fractions(
            "Prefix cache hits",
            "Fraction of the prompt tokens whose KV blocks were cached already.",
            (hits, POD),
        ),
        series(
            "Prompt tokens by source",
            "Prompt tokens that were computed, and those whose KV blocks were found.",
            units.CountsPerSecond,
            rate_by(engine.PROMPT_TOKENS_BY_SOURCE, "source"),
        ),
        series(
            "Preemptions",
            "Running requests that gave up their KV blocks, to be computed again, per second.",
            units.EventsPerSecond,
            (ENGINES.rate(engine.PREEMPTED, "pod"), POD),
        ).span(12),
        series(
            "Actions when KV blocks ran out",
            "Requests that waited, were refused or gave up their blocks (recompute), and blocks "
            "that were dropped (evict) or kept in host memory (offload).",
            units.EventsPerSecond,
            rate_by(engine.KV_EXHAUSTED, "action"),
        ).span(12),
    )


def offloading() -> Row:
    return Row(
        "KV blocks in host memory",
        series(
            "Cached prompt tokens by place",
            "Prompt tokens whose KV blocks were found, by where they were: device or host.",
            units.CountsPerSecond,
            rate_by(engine.PROMPT_TOKENS_CACHED_BY_SOURCE, "source"),
        ).span(12),
        series(
            "Copy or compute",
            "Choices between copying a KV block and computing it again, with their reason. Only of "
            "engines with host memory for KV blocks (--kv-offloading-size).",
            units.EventsPerSecond,
            (
                ENGINES.rate(features.KV_COPY_CHOICES, "service, choice, reason"),
                "{{service}} {{choice}}: {{reason}}",
            ),
        ).span(12),
    )
