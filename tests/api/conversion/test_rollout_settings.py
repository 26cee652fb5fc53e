"""Rollout settings of the API in the record of core: defaults and units."""

from typing import Any

import pytest

from penstock.api.conversion.convert import to_core
from penstock.core.spec.canary import CanarySpec, MirrorSpec
from penstock.core.spec.metric_gate import MetricGate
from penstock.core.spec.rollout import RolloutSpec, Variable

METRIC = {"name": "m", "server": "http://p:9090", "query": "up"}


def converted(rollout: dict[str, Any]) -> RolloutSpec:
    metadata = {
        "namespace": "default", "name": "chat", "uid": "u", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    body = {"metadata": metadata, "spec": {"model": {"uri": "pvc://models"}, "rollout": rollout}}
    return to_core(body).rollout


def canary(**settings: Any) -> CanarySpec:
    return converted({"strategy": "Canary", "canary": settings}).canary


@pytest.mark.parametrize(
    "rollout",
    [
        {},
        {"strategy": "Canary", "canary": {}},
        {"strategy": "BlueGreen", "blueGreen": {}},
        {"strategy": "Rolling", "rolling": {}},
    ],
)
def test_what_is_not_set_has_the_defaults_of_core(rollout: dict[str, Any]) -> None:
    assert converted(rollout) == RolloutSpec(strategy=rollout.get("strategy", "Rolling"))


def test_units() -> None:
    made = canary(
        alpha="0.05",
        latencyTolerancePercent=20,
        errorTolerancePercent=2,
        violationTolerancePercent=7,
        minWeightPercent=1,
        maxWeightPercent=29,
        maxDuration="1h30m",
        onTimeout="Promote",
        mirror={"percent": 1},
        metrics=[METRIC | {"minimum": "-0.5", "interval": "1m500ms"}],
    )
    assert made == CanarySpec(
        alpha=0.05,
        latency_tolerance=0.2,
        error_tolerance=0.02,
        violation_tolerance=0.07,
        min_weight=0.01,
        max_weight=0.29,
        max_duration_s=5400.0,
        on_timeout="Promote",
        mirror=MirrorSpec(percent=1),
        metrics=(
            MetricGate(name="m", server="http://p:9090", query="up", minimum=-0.5, interval_s=60.5),
        ),
    )


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({"maxWeightPercent": 3}, (0.03, 0.03)),
        ({"maxWeightPercent": 30}, (0.05, 0.3)),
        ({"minWeightPercent": 50}, (0.5, 0.5)),
    ],
)
def test_the_first_weight_is_at_most_the_last(
    weights: dict[str, int], expected: tuple[float, float]
) -> None:
    made = canary(**weights)
    assert (made.min_weight, made.max_weight) == expected


def test_limits_of_rolling_keep_their_percentages() -> None:
    made = converted({"rolling": {"maxSurge": "25%", "maxUnavailable": 2}})
    assert (made.max_surge, made.max_unavailable) == ("25%", 2)


@pytest.mark.parametrize(
    ("resources", "requests", "limits"),
    [
        ({}, {"cpu": "100m", "memory": "256Mi"}, {"memory": "256Mi"}),
        ({"limits": {"cpu": 2}}, {"cpu": "2", "memory": "256Mi"}, {"cpu": "2", "memory": "256Mi"}),
        ({"requests": {"memory": "1Gi"}}, {"cpu": "100m", "memory": "1Gi"}, {}),
        (
            {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
            {"cpu": "1", "memory": "1Gi"},
            {"memory": "1Gi"},
        ),
    ],
)
def test_resources_of_an_evaluation(
    resources: dict[str, Any], requests: dict[str, str], limits: dict[str, str]
) -> None:
    evaluation = {"image": "x", "resources": resources}
    made = converted({"strategy": "Canary", "canary": {"evaluation": evaluation}}).evaluation
    assert made is not None
    assert (made.resources.requests, made.resources.limits) == (requests, limits)


def test_variables_of_an_evaluation() -> None:
    source = {"secretKeyRef": {"name": "s", "key": "k"}}
    env = [{"name": "A"}, {"name": "B", "value": "b"}, {"name": "C", "valueFrom": source}]
    evaluation = {"image": "x", "env": env}
    made = converted({"strategy": "Canary", "canary": {"evaluation": evaluation}}).evaluation
    assert made is not None
    assert made.env == (
        Variable(name="A"), Variable(name="B", value="b"), Variable(name="C", secret=("s", "k")),
    )  # fmt: skip
