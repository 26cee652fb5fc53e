"""Rows of the engine dashboard about steps, and about speculation in them."""

from grafana_foundation_sdk.models import units

from penstock.observability.dashboards.board import Row
from penstock.observability.dashboards.engine_queries import POD
from penstock.observability.dashboards.panels import fractions, series
from penstock.observability.dashboards.promql import ENGINES, ratio
from penstock_engine.contract import feature_metric_specs as features
from penstock_engine.contract import metric_specs as engine


def steps() -> Row:
    steps = ENGINES.rate(engine.ITERATION_TOKENS, "pod", suffix="_count")
    return Row(
        "Steps",
        series(
            "Time of a step",
            "Mean time that a step took to compute.",
            units.Seconds,
            (ratio(ENGINES.rate(engine.BUSY_SECONDS, "pod"), steps), POD),
        ),
        series(
            "Tokens of a step",
            "Tokens of the batch: mean, and p95.",
            units.Short,
            (ENGINES.mean(engine.ITERATION_TOKENS, "pod"), f"{POD} mean"),
            (ENGINES.quantile(0.95, engine.ITERATION_TOKENS, "pod"), f"{POD} p95"),
        ),
        fractions(
            "Busy time",
            "Fraction of the time in which a step was computed.",
            (ENGINES.rate(engine.BUSY_SECONDS, "pod"), POD),
        ),
        series(
            "Computed per GPU",
            "Estimated floating point operations per second, of one GPU or of the CPU.",
            units.FlopsPerSecond,
            (ENGINES.rate(engine.FLOPS, "pod"), POD),
        ).span(12),
        series(
            "Memory traffic per GPU",
            "Estimated bytes per second that steps read and wrote, of one GPU or of the CPU.",
            units.BytesPerSecondSI,
            (ENGINES.rate(engine.READ_BYTES, "pod"), f"{POD} read"),
            (ENGINES.rate(engine.WRITTEN_BYTES, "pod"), f"{POD} written"),
        ).span(12),
    )


def speculation() -> Row:
    drafts = ENGINES.rate(features.SPEC_DRAFTS, "service")
    accepted = ENGINES.rate(features.SPEC_ACCEPTED_TOKENS, "service")
    return Row(
        "Speculation",
        fractions(
            "Accepted draft tokens",
            "Fraction of the draft tokens that the model accepted. Only of engines that speculate.",
            (ratio(accepted, ENGINES.rate(features.SPEC_DRAFT_TOKENS, "service")), "{{service}}"),
        ),
        series(
            "Tokens of a draft",
            "Tokens that a step added to a request: the accepted ones, and one of its own. Only of "
            "engines that speculate.",
            units.Short,
            (f"1 + {ratio(accepted, drafts)}", "{{service}}"),
        ),
        fractions(
            "Acceptance by position",
            "Fraction of the drafts whose token at this position was accepted. Only of engines that "
            "speculate.",
            (
                f"{ENGINES.rate(features.SPEC_ACCEPTED_BY_POSITION, 'service, position')} / "
                f"on (service) group_left () ({drafts} > 0)",
                "{{service}} {{position}}",
            ),
        ),
    )
