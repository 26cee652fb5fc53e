"""Service with two variants: the cheap one grows first, and costs are reported."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from penstock.core.formats.serialization import deserialize, serialize
from penstock.core.scaling.by_objectives.record import Learned, from_record, to_record
from penstock.core.scaling.by_objectives.state import ObjectivesState
from penstock.sim.report import held_s, summaries_of
from penstock.sim.run import Run, run
from penstock.sim.scenario import load

A100 = {"name": "small", "profile": "llama-3.1-8b-a100", "startup_s": 20.0}
H100 = {"name": "large", "profile": "llama-3.1-8b-h100", "startup_s": 20.0}


@pytest.fixture(scope="module")
def run_with_growing_load() -> Run:
    """Run with twenty times the load in the middle."""
    rates = [(0, 1), (100, 1), (100, 20), (400, 20)]
    lengths = {
        "prompt": {"kind": "fixed", "tokens": 1000},
        "output": {"kind": "fixed", "tokens": 100},
    }
    spec = {
        "profile": "", "variants": [A100, H100], "ttft_s": 2.0, "tpot_s": 0.1,
        "workload": {"kind": "rate", "points": rates, "mixes": [{"classes": [lengths]}]},
    }  # fmt: skip
    made = {"name": "variants", "duration_s": 400.0, "services": [spec]}
    return run(load("two-variants").model_validate(made), "penstock", 3)


def test_the_cheap_one_suffices_for_little_and_the_strong_one_comes_for_much(
    run_with_growing_load: Run,
) -> None:
    [service] = run_with_growing_load.services
    mixes = [r.decision.by_variant for r in service.scaler.records if r.at_s < 400]
    assert mixes[0] == {"small": 1, "large": 0}
    assert max(mix["large"] for mix in mixes) >= 1
    for record in service.scaler.records:
        assert record.decision.desired == sum(record.decision.by_variant.values()) <= 8


def test_each_is_paid_for_by_itself(run_with_growing_load: Run) -> None:
    [service] = run_with_growing_load.services
    [summary] = summaries_of(run_with_growing_load)
    hours = {v: held_s(service.fleet.census, 400.0, v) / 3600 for v in ("small", "large")}
    assert summary.cost == pytest.approx(2.5 * hours["small"] + 4.0 * hours["large"])
    assert summary.gpu_hours == pytest.approx(sum(hours.values()))
    assert all(hours.values())


def test_each_is_learned_of_by_itself(run_with_growing_load: Run) -> None:
    [service] = run_with_growing_load.services
    state: Any = service.scaler._state
    assert {name: known.fit.windows > 5 for name, known in state.known.items()} == {
        "small": True,
        "large": True,
    }
    small, large = (state.known[name].fit.model.time_s(500, 8, 8000) for name in ("small", "large"))
    assert large < 0.7 * small
    learned = Learned.of(state)
    assert from_record(json.loads(json.dumps(to_record(learned)))) == learned
    assert learned.restored(service.rule.initial()).known == learned.known
    assert deserialize(ObjectivesState, json.loads(json.dumps(serialize(state)))) == state


def test_a_quota_of_one_kind_leaves_the_other(run_with_growing_load: Run) -> None:
    limited = run_with_growing_load.scenario.model_copy(update={"quotas": {"H100": 0}})
    [service] = run(limited, "penstock", 3).services
    assert max(r.decision.by_variant["large"] for r in service.scaler.records) == 0
    assert max(r.decision.by_variant["small"] for r in service.scaler.records) > 2


@pytest.mark.parametrize(
    "change",
    [
        {"profile": "llama-3.1-8b-h100"},
        {"variants": [A100, A100]},
        {"variants": [A100 | {"min_replicas": 9}]},
        {"variants": [A100 | {"profile": "none"}]},
        {"variants": []},
    ],
)
def test_invalid_variants_are_refused(run_with_growing_load: Run, change: dict[str, Any]) -> None:
    plain = run_with_growing_load.scenario.model_dump(mode="json")
    plain["services"][0] |= change
    with pytest.raises(ValidationError):
        type(run_with_growing_load.scenario).model_validate(plain)
