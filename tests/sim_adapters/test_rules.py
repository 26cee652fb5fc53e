"""Rules of placement on small workloads, and the bars of placement on the simulator's clock."""

from dataclasses import replace
from functools import cache

import pytest
from benchmarks.simulator.adapter_placement import capacity_rps

from penstock.core.routing import scorers
from penstock.sim.adapters.bound import fewest_loads
from penstock.sim.adapters.penstock import Penstock
from penstock.sim.adapters.pool import Pool
from penstock.sim.adapters.run import RULES, Summary, engine_profile, run
from penstock.sim.adapters.workload import AdapterWorkload, Call, Step, calls, load_times
from penstock.sim.workload.lengths import LogNormal

SHORT = LogNormal(median=100, p99=200)
SMALL = AdapterWorkload(rps=3, duration_s=420, num_adapters=60, output=SHORT, prompt=SHORT)


@cache
def small_run(rule: str) -> Summary:
    return run(rule, SMALL, seed=1, num_pods=3, slots=6)


@pytest.mark.parametrize("rule", RULES)
def test_every_request_is_answered(rule: str) -> None:
    summary = small_run(rule)
    assert summary.refused == 0
    assert summary.requests == sum(call.at_s >= 300 for call in calls(SMALL, 1))
    assert summary.ttft_p99_s < 20


def test_no_rule_loads_less_than_the_bound() -> None:
    loads = {rule: small_run(rule).loads_per_min for rule in RULES}
    assert loads.pop("bound") < min(loads.values())
    assert loads["penstock"] < loads["lru-random"]


def test_beladys_rule_evicts_what_is_used_last() -> None:
    drawn = [Call(float(i), adapter, 1, 1) for i, adapter in enumerate((0, 1, 2, 0, 1, 2, 0))]
    assert fewest_loads(drawn, slots=2, from_s=0) == 5
    assert fewest_loads(drawn, slots=3, from_s=0) == 3
    assert fewest_loads(drawn, slots=3, from_s=1) == 2


def test_a_cold_request_is_answered_within_its_load_and_half_a_second() -> None:
    workload = replace(SMALL, rps=4.0, num_adapters=500)
    loads = load_times(workload, 3)
    pool = Pool(Penstock(), engine_profile(), 4, 16, loads)
    drawn = calls(workload, 3)
    pool.run(drawn, workload.duration_s + 60)
    late = [
        request.ttft_s
        for request, call in zip(pool.totals.requests, drawn, strict=True)
        if request.ttft_s is None or request.ttft_s > loads[call.adapter] + 0.5
    ]
    assert sum(pool.totals.misses) > 500
    assert len(late) <= 0.001 * len(drawn)


def test_a_scorer_is_in_force_for_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last pod gets all requests for an adapter that every pod has, however many it has."""

    def requests_by_pod() -> list[int]:
        pool = Pool(Penstock(), engine_profile(), 3, 1, [0.1])
        for pod in pool.pods:
            pod.load(pool.names[0])
        pool.run([Call(1.0, 0, 100, 1000) for _ in range(12)], until_s=1.5)
        return [pod.num_open for pod in pool.pods]

    def prefer(candidates: scorers.Candidates) -> list[float]:
        assert candidates.request.conversation_key is None
        last = max(engine.pod for engine in candidates.engines)
        return [1e9 * (engine.pod == last) for engine in candidates.engines]

    assert requests_by_pod() == [4, 4, 4]
    monkeypatch.setattr(scorers, "SCORERS", (*scorers.SCORERS, (1.0, prefer)))
    assert requests_by_pod() == [0, 0, 12]


def test_a_hot_adapter_has_a_copy_on_every_pod_within_5_s_of_a_step() -> None:
    step = Step(at_s=200, adapter=2, factor=20)
    workload = AdapterWorkload(rps=0.35 * 8 * capacity_rps(), duration_s=230, step=step)
    pool = Pool(Penstock(), engine_profile(), 8, 16, load_times(workload, seed=0))
    found: dict[float, int] = {}

    def count(at_s: float) -> None:
        name = pool.names[step.adapter]
        found[at_s] = sum(pod.has(name) for pod in pool.pods)

    for at_s in (199.0, 205.0, 229.0):
        pool.clock.schedule_at(at_s, lambda at_s=at_s: count(at_s))  # type: ignore[misc]
    pool.run(calls(workload, seed=0), workload.duration_s)
    assert found[199.0] <= 2
    assert found[205.0] == 8
    assert found[229.0] == 8
