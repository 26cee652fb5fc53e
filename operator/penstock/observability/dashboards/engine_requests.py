"""Rows of the engine dashboard about requests: their phases and latencies, and how they ended."""

from grafana_foundation_sdk.models import units

from penstock.observability.dashboards.board import Row
from penstock.observability.dashboards.engine_queries import POD, rate_by
from penstock.observability.dashboards.panels import Panel, areas, series
from penstock.observability.dashboards.promql import ENGINES
from penstock_engine.contract import metric_specs as engine


def requests() -> Row:
    return Row("Requests", *_times(), *_load())


def _times() -> tuple[Panel, ...]:
    """Panels of times within a request."""
    phases = (
        (engine.QUEUE_TIME, "waiting"),
        (engine.PREFILL_TIME, "prefill"),
        (engine.DECODE_TIME, "decode"),
    )
    return (
        areas(
            "Time of a request by phase",
            "Mean time that requests spent waiting, in prefill and in decode.",
            units.Seconds,
            *(
                (ENGINES.mean(spec, "service"), f"{{{{service}}}} {phase}")
                for spec, phase in phases
            ),
        ),
        series(
            "Time to the first token",
            "From the request's arrival at the engine.",
            units.Seconds,
            (ENGINES.quantile(0.5, engine.TIME_TO_FIRST_TOKEN, "service"), "{{service}} p50"),
            (ENGINES.quantile(0.95, engine.TIME_TO_FIRST_TOKEN, "service"), "{{service}} p95"),
        ),
        series(
            "Time between tokens",
            "Time from one token of a request to the next.",
            units.Seconds,
            (ENGINES.quantile(0.5, engine.INTER_TOKEN_LATENCY, "service"), "{{service}} p50"),
            (ENGINES.quantile(0.95, engine.INTER_TOKEN_LATENCY, "service"), "{{service}} p95"),
        ),
    )


def _load() -> tuple[Panel, ...]:
    """Panels of how much engines have to do."""
    return (
        series(
            "Running and waiting",
            "Requests in the batch, and those that wait for capacity or were deferred.",
            units.Short,
            (ENGINES.sum(engine.RUNNING, "pod"), f"{POD} running"),
            (ENGINES.sum(engine.WAITING_BY_REASON, "pod, reason"), f"{POD} {{{{reason}}}}"),
        ),
        series(
            "Tokens of a request, p95",
            "Prompt tokens and generated tokens of finished requests.",
            units.Short,
            (ENGINES.quantile(0.95, engine.REQUEST_PROMPT_TOKENS, "service"), "{{service}} in"),
            (
                ENGINES.quantile(0.95, engine.REQUEST_GENERATION_TOKENS, "service"),
                "{{service}} out",
            ),
        ),
        series(
            "Prompt tokens not yet computed",
            "Prompt tokens of accepted requests that still have to be computed.",
            units.Short,
            (ENGINES.sum(engine.PREFILL_TOKENS_PENDING, "pod"), POD),
        ),
    )


def answers() -> Row:
    return Row(
        "How requests ended",
        series(
            "Finished requests",
            "Requests that ended, by reason.",
            units.RequestsPerSecond,
            rate_by(engine.REQUEST_SUCCESS, "finished_reason"),
        ),
        series(
            "Timeouts",
            "Requests whose deadline passed, by the phase that they were in.",
            units.RequestsPerSecond,
            rate_by(engine.REQUEST_TIMEOUTS, "phase"),
        ),
        series(
            "Refused and corrupted",
            "Requests refused before they were queued, and requests with NaN in their logits.",
            units.RequestsPerSecond,
            ENGINES.rate(engine.ADMISSION_REJECTIONS, "service, reason"),
            (ENGINES.rate(engine.CORRUPTED, "service"), "{{service}} corrupted"),
        ),
        series(
            "Structured answers",
            "Answers that a grammar constrains: complete, cut off (incomplete) or failed.",
            units.RequestsPerSecond,
            rate_by(engine.STRUCTURED_ANSWERS, "outcome"),
        ).span(12),
        series(
            "Tool calls that cannot be parsed",
            "Answers with text that begins like a tool call and is none that the request allows.",
            units.RequestsPerSecond,
            ENGINES.rate(engine.TOOL_PARSE_FAILURES, "service"),
        ).span(12),
    )
