"""Decisions from their trail: bounds, codes, reasons, and numbers that are held without metrics."""

from dataclasses import replace

import pytest
from tests.core.scaling.by_kv.engine_loads import engine, observation

from penstock.core.scaling.blind import missing_metrics
from penstock.core.scaling.decisions import bounded_decision, held_decision, reason_of
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.rule import Bounds, DecisionCode, TrailEntry
from penstock.core.scaling.signals import GatewayReading, Missing, Observation

EMPTY = Histogram((1.0,), (0, 0), 0.0)
LOST = Missing("b", "ReadTimeout")


def gateway(queued: int = 0) -> GatewayReading:
    return GatewayReading(
        at_s=0.0, queued=queued, queued_prompt_tokens=0, in_flight=0, in_flight_prefill_tokens=0,
        oldest_wait_s=0.0, arrivals=0, prompt_tokens=0, ended=0, output_tokens=0, attended_tokens=0,
        late=0, shed=0, failed=0, ttft_s=EMPTY, tpot_s=EMPTY,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("current", "desired", "code", "bounds", "expected"),
    [
        (3, 4, "ScaleUp", (1, 9), (4, "ScaleUp", "within 1 to 9")),
        (3, 8, "ScaleUp", (1, 6), (6, "ScaleUp", "bounded by maxReplicas 6")),
        (6, 8, "ScaleUp", (1, 6), (6, "AtMaximum", "bounded by maxReplicas 6")),
        (6, 8, "ScaleUp", (1, 4), (4, "Bounded", "bounded by maxReplicas 4")),
        (3, 2, "ScaleDown", (1, 9), (2, "ScaleDown", "within 1 to 9")),
        (9, 8, "ScaleDown", (1, 6), (6, "ScaleDown", "bounded by maxReplicas 6")),
        (3, 2, "ScaleDown", (3, 9), (3, "Steady", "bounded by minReplicas 3")),
        (1, 1, "Steady", (3, 9), (3, "Bounded", "bounded by minReplicas 3")),
        (5, 5, "MetricsMissing", (1, 2), (2, "Bounded", "bounded by maxReplicas 2")),
        (5, 5, "MetricsMissing", (1, 9), (5, "MetricsMissing", "within 1 to 9")),
    ],
)
def test_bounds_and_codes(
    current: int,
    desired: int,
    code: DecisionCode,
    bounds: tuple[int, int],
    expected: tuple[int, DecisionCode, str],
) -> None:
    trail = [TrailEntry("need", desired, "so many are needed")]
    decision = bounded_decision(Bounds(*bounds), current, desired, code, trail)
    last = decision.trail[-1]
    assert (decision.desired, decision.code, last.note) == expected
    assert (last.step, last.replicas) == ("bounds", decision.desired)
    is_changed = decision.desired != desired
    assert decision.reason == "so many are needed" + is_changed * f"; {last.note}"
    assert decision.valid == (decision.code != "MetricsMissing")


def test_the_reason_has_the_steps_that_changed_or_held_the_number() -> None:
    steps = [
        ("source", 3), ("capacity", 3), ("need", 4), ("queue", 4), ("up", 4), ("delay", 3),
        ("queue", 5), ("up", 6), ("steady", 6), ("down", 5), ("blind", 5), ("bounds", 5),
    ]  # fmt: skip
    trail = [TrailEntry(step, replicas, f"{step} {replicas}") for step, replicas in steps]
    assert reason_of(trail) == "need 4; delay 3; queue 5; up 6; down 5; blind 5"


@pytest.mark.parametrize(
    ("seen", "by_engines", "with_gateway"),
    [
        (observation(engine()), None, None),
        (observation(engine(), LOST), None, None),
        (observation(LOST), *["no usable metrics of b (ReadTimeout)"] * 2),
        (observation(LOST, LOST, LOST), *["no usable metrics of b (ReadTimeout) and 2 more"] * 2),
        (observation(), "no engine is ready", "no gateway and no ready engine"),
        (replace(observation(), gateway=gateway()), "no engine is ready", None),
        (
            replace(observation(engine()), gateway=Missing("gateway", "ConnectError")),
            None,
            "no usable metrics of the gateway (ConnectError)",
        ),
    ],
)
def test_missing_metrics(
    seen: Observation, by_engines: str | None, with_gateway: str | None
) -> None:
    assert missing_metrics(seen, uses_gateway=False) == by_engines
    assert missing_metrics(seen, uses_gateway=True) == with_gateway


@pytest.mark.parametrize(
    ("provisioned", "queued", "bounds", "expected"),
    [
        (2, 0, (1, 9), (2, "MetricsMissing", "ReadTimeout; 2 replicas are held", {"a": 2})),
        (1, 0, (0, 9), (1, "MetricsMissing", "ReadTimeout; 1 replica is held", {"a": 1})),
        (0, 0, (0, 9), (0, "MetricsMissing", "ReadTimeout; 0 replicas are held", {"a": 0})),
        (0, 1, (0, 9), (1, "MetricsMissing", "ReadTimeout; 1 replica is held", {})),
        (
            4,
            0,
            (1, 3),
            (3, "Bounded", "ReadTimeout; 4 replicas are held; bounded by maxReplicas 3", {}),
        ),
    ],
)
def test_held_without_metrics(
    provisioned: int, queued: int, bounds: tuple[int, int], expected: object
) -> None:
    seen = replace(
        observation(provisioned=provisioned),
        gateway=gateway(queued),
        by_variant={"a": provisioned},
    )
    decision = held_decision(Bounds(*bounds), seen, "ReadTimeout")
    assert (decision.desired, decision.code, decision.reason, decision.by_variant) == expected
    assert [entry.step for entry in decision.trail] == ["blind", "bounds"]
