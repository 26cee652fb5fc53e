"""Converts spec.rollout of an InferenceService to the record of core."""

from dataclasses import replace

from penstock.api.conversion.scalars import quantities
from penstock.api.inferenceservice import gates, rollout
from penstock.api.inferenceservice.canary import Canary, Mirror
from penstock.api.schema.defaults import without_none
from penstock.core.formats.quantity import parse_duration_s
from penstock.core.spec.canary import CanarySpec, MirrorSpec
from penstock.core.spec.metric_gate import MetricGate
from penstock.core.spec.rollout import EvaluationSpec, RolloutSpec, Variable, evaluation_resources


def rollout_spec(wanted: rollout.Rollout) -> RolloutSpec:
    """The settings of rollouts, with defaults."""
    canary = wanted.canary or Canary()
    blue_green = wanted.blue_green or rollout.BlueGreen()
    rolling = wanted.rolling or rollout.Rolling()
    return RolloutSpec(
        strategy=wanted.strategy,
        canary=_canary(canary),
        evaluation=_evaluation(canary.evaluation) if canary.evaluation else None,
        **without_none(
            comparison=canary.comparison,
            promotion=blue_green.promotion,
            scale_down_delay_s=_seconds(blue_green.scale_down_delay),
            max_surge=rolling.max_surge,
            max_unavailable=rolling.max_unavailable,
            at_zero=wanted.at_zero,
            progress_deadline_s=_seconds(wanted.progress_deadline),
            history=wanted.revision_history_limit,
        ),
    )


def _canary(wanted: Canary) -> CanarySpec:
    made = CanarySpec(
        metrics=tuple(_metric(metric) for metric in wanted.metrics),
        mirror=_mirror(wanted.mirror) if wanted.mirror else None,
        **without_none(
            alpha=None if wanted.alpha is None else float(wanted.alpha),
            latency_tolerance=_fraction(wanted.latency_tolerance_percent),
            error_tolerance=_fraction(wanted.error_tolerance_percent),
            violation_tolerance=_fraction(wanted.violation_tolerance_percent),
            min_weight=_fraction(wanted.min_weight_percent),
            max_weight=_fraction(wanted.max_weight_percent),
            max_duration_s=_seconds(wanted.max_duration),
            on_timeout=wanted.on_timeout,
        ),
    )
    return replace(made, min_weight=min(made.min_weight, made.max_weight))


def _seconds(duration: str | None) -> float | None:
    return None if duration is None else parse_duration_s(duration)


def _fraction(percent: int | None) -> float | None:
    return None if percent is None else percent / 100


def _mirror(wanted: Mirror) -> MirrorSpec:
    return MirrorSpec(**without_none(percent=wanted.percent, duration_s=_seconds(wanted.duration)))


def _metric(wanted: gates.Metric) -> MetricGate:
    return MetricGate(
        name=wanted.name,
        server=wanted.server,
        query=wanted.query,
        **without_none(
            minimum=None if wanted.minimum is None else float(wanted.minimum),
            maximum=None if wanted.maximum is None else float(wanted.maximum),
            interval_s=_seconds(wanted.interval),
            initial_delay_s=_seconds(wanted.initial_delay),
            failure_limit=wanted.failure_limit,
            no_data=wanted.no_data,
        ),
    )


def _evaluation(wanted: gates.Evaluation) -> EvaluationSpec:
    return EvaluationSpec(
        image=wanted.image,
        command=tuple(wanted.command),
        args=tuple(wanted.args),
        env=tuple(map(_variable, wanted.env)),
        resources=evaluation_resources(
            quantities(wanted.resources.requests), quantities(wanted.resources.limits)
        ),
        **without_none(timeout_s=_seconds(wanted.timeout)),
    )


def _variable(wanted: gates.Variable) -> Variable:
    source = wanted.value_from and wanted.value_from.secret_key_ref
    return Variable(
        name=wanted.name,
        value=wanted.value or "",
        secret=(source.name, source.key) if source else None,
    )
