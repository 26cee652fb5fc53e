"""Runs of routing rules: the same load for each, events, and the summary."""

from typing import Any

import pytest

from penstock.sim.gateway import STABLE
from penstock.sim.request import Request
from penstock.sim.routing.registry import PICKERS, make_picker
from penstock.sim.routing_runs.pool import NEW, Pool
from penstock.sim.routing_runs.run import DRAIN_S, prediction_errors, run
from penstock.sim.routing_runs.scenario import RoutingScenario


def scenario(*events: dict[str, Any], **changes: Any) -> RoutingScenario:
    workload = {
        "kind": "chats", "chats_per_s": 1.0, "mean_turns": 4, "think_s": 4.0, "system_tokens": 256,
        "message": {"kind": "lognormal", "median": 300, "p99": 2000},
        "answer": {"kind": "lognormal", "median": 60, "p99": 200},
    }  # fmt: skip
    small = {
        "name": "small", "duration_s": 60.0, "warm_up_s": 10.0, "replicas": 3, "startup_s": 5.0,
        "profile": "qwen3-32b-h100-tp2", "workload": workload, "events": events,
    }  # fmt: skip
    return RoutingScenario.model_validate(small | changes)


def pool_of(what: RoutingScenario, rule: str = "round-robin") -> Pool:
    pool = Pool(what, make_picker(rule), 0)
    pool.run(DRAIN_S)
    return pool


@pytest.mark.parametrize("rule", PICKERS)
def test_a_run_has_a_summary(rule: str) -> None:
    summary = run(scenario(), rule, 0)
    assert summary == run(scenario(), rule, 0)
    assert summary.lost == 0
    assert 0 < summary.hit_rate <= summary.reusable_share < 1
    assert 0 < summary.ttft_p50_s <= summary.ttft_p90_s <= summary.ttft_p99_s
    assert 1 <= summary.imbalance <= 3


def test_rules_with_the_same_seed_get_the_same_conversations() -> None:
    first, second = (
        {
            (r.request_id, r.prompt_tokens, r.output_tokens)
            for r in pool_of(scenario(), rule).requests
        }
        for rule in ("random", "least-loaded")
    )
    begun = {each for each in first if each[0].endswith("-0")}
    assert begun
    assert begun == {each for each in second if each[0].endswith("-0")}


def test_penstock_predicts_the_first_token() -> None:
    assert run(scenario(), "penstock", 0).error_p50 is not None
    assert run(scenario(), "random", 0).error_p50 is None


def test_the_error_of_a_prediction_is_relative_to_the_measured_time() -> None:
    requests = []
    for number, predicted_s in enumerate((3.0, 1.0, None)):
        request = Request(f"r{number}", 0.0, 10, 10)
        request.sent_s, request.first_token_s, request.predicted_s = 1.0, 3.0, predicted_s
        requests.append(request)
    assert prediction_errors(requests) == [0.5, 0.5]


def test_an_engine_that_restarts_loses_its_cache_and_comes_back() -> None:
    pool = pool_of(scenario({"kind": "restart", "at_s": 30.0}))
    ((at_s, _, pod),) = pool.effects
    assert at_s == 30.0
    later = [r for r in pool.requests if r.pod == pod and r.sent_s > at_s]
    first = min(later, key=lambda request: request.sent_s)
    assert first.sent_s > 33.0
    assert first.cached_tokens == 0
    assert max(request.cached_tokens for request in later) > 0


def test_engines_are_added() -> None:
    pool = pool_of(scenario({"kind": "scale", "at_s": 20.0, "replicas": 5}))
    ((at_s, _, _),) = pool.effects
    assert 20.0 < at_s < 30.0
    assert len({r.pod for r in pool.requests if r.sent_s < 20.0}) == 3
    assert len({r.pod for r in pool.requests if r.sent_s > at_s}) == 5


@pytest.mark.parametrize("keeps_side", [True, False])
def test_a_canary_gets_its_part_of_the_conversations(keeps_side: bool) -> None:
    canary = {"kind": "canary", "at_s": 20.0, "weight": 50, "replicas": 1}
    pool = pool_of(scenario(canary, keeps_side=keeps_side))
    ((at_s, _, _),) = pool.effects
    sides: dict[str, set[str]] = {}
    for request in pool.requests:
        if request.sent_s > at_s:
            side = pool.gateway.sides[request.pod]
            sides.setdefault(request.session, set()).add(side.revision)
    revisions = {side for of_one in sides.values() for side in of_one}
    assert revisions == {STABLE.revision, NEW.revision}
    assert all(len(of_one) == 1 for of_one in sides.values()) is keeps_side
    assert len(pool.fleet.of_side(STABLE, "")) == 2


def test_bad_scenarios_are_refused() -> None:
    with pytest.raises(ValueError, match="warm_up_s must be below duration_s"):
        scenario(warm_up_s=60.0)
    with pytest.raises(ValueError, match="events must be before duration_s"):
        scenario({"kind": "restart", "at_s": 60.0})
    with pytest.raises(ValueError, match="no profile 'x'"):
        scenario(profile="x")
