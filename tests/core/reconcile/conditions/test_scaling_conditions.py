"""The conditions ScalingActive and ObjectivesAttainable of a service."""

from dataclasses import replace
from typing import Any

import pytest
from tests.core.reconcile.conditions.observed_engines import OLD, observed_with
from tests.core.reconcile.conditions.service_conditions import (
    EXTERNAL,
    REPORT,
    SETTLED,
    SPEC,
    condition_of,
)

from penstock.core.reconcile.conditions import conditions
from penstock.core.reconcile.plan import Plan
from penstock.core.scaling.report import ScalingReport
from penstock.core.spec.objectives import Objectives


@pytest.mark.parametrize(
    ("mode", "report", "expected"),
    [
        ("Active", None, ("Unknown", "NoDecision", "no decision has been made yet")),
        ("DryRun", None, ("Unknown", "NoDecision", "no decision has been made yet")),
        ("Active", REPORT, ("True", "Active", "decisions are based on the engines' metrics")),
        ("DryRun", REPORT, ("True", "DryRun", "decisions are recorded, not applied")),
        (
            "DryRun", replace(REPORT, valid=False, reason_code="MetricsMissing", reason="none"),
            ("False", "MetricsMissing", "none"),
        ),
    ],
)  # fmt: skip
def test_scaling_active(
    mode: Any, report: ScalingReport | None, expected: tuple[str, str, str]
) -> None:
    spec = replace(SPEC, scaling=replace(SPEC.scaling, mode=mode))
    assert condition_of("ScalingActive", spec=spec, scaling=report) == expected


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (None, ("Unknown", "NoDecision", "no decision has been made yet")),
        (
            REPORT,
            ("True", "Attainable", "no engine is known to miss the objectives while it is idle"),
        ),
        (
            replace(REPORT, trail=(("unattainable", 1, "not attainable: a TTFT of 2 s"),)),
            ("False", "ObjectivesUnattainable", "not attainable: a TTFT of 2 s"),
        ),
    ],
)
def test_objectives_that_no_number_of_replicas_keeps(
    report: ScalingReport | None, expected: tuple[str, str, str]
) -> None:
    scaling = replace(SPEC.scaling, objectives=Objectives(0.5))
    spec = replace(SPEC, scaling=scaling)
    assert condition_of("ObjectivesAttainable", spec=spec, scaling=report) == expected


@pytest.mark.parametrize(("mode", "objectives"), [("Active", None), ("External", Objectives(0.5))])
def test_nothing_is_said_on_objectives_without_them_and_from_outside(
    mode: Any, objectives: Objectives | None
) -> None:
    spec = replace(SPEC, scaling=replace(SPEC.scaling, mode=mode, objectives=objectives))
    tree = conditions(spec, observed_with(), Plan(OLD, SETTLED, ()), REPORT)
    assert "ObjectivesAttainable" not in {c.type for c in tree}


def test_nothing_is_said_on_scaling_from_outside() -> None:
    tree = conditions(EXTERNAL, observed_with(), Plan(OLD, SETTLED, ()), REPORT)
    assert "ScalingActive" not in {c.type for c in tree}
