"""Rules of placement on small workloads, and the bars of placement on the simulator's clock."""

from collections import Counter
from functools import cache, partial
from random import Random

import pytest
from benchmarks.simulator.adapter_placement import ZIPF, capacity_rps

from penstock.sim.adapters.bound import fewest_loads
from penstock.sim.adapters.penstock import Penstock
from penstock.sim.adapters.pool import Pool
from penstock.sim.adapters.run import RULES, Summary, run
from penstock.sim.adapters.scenario import Adapters, AdapterScenario
from penstock.sim.adapters.workload import load_times, requests_of
from penstock.sim.request import Request
from penstock.sim.workload.lengths import LogNormal

SHORT = LogNormal(median=100, p99=200)
ADAPTERS = Adapters(count=60, pods=3, slots=6, loads_at_once=1, rps=3, output=SHORT, prompt=SHORT)
SMALL = AdapterScenario(name="small", duration_s=420, adapters=ADAPTERS)


@cache
def small_run(rule: str) -> Summary:
    return run(SMALL, rule, seed=1)


@pytest.mark.parametrize("rule", RULES)
def test_every_request_is_answered(rule: str) -> None:
    summary = small_run(rule)
    assert summary.refused == 0
    assert summary.requests == sum(r.arrival_s >= 300 for r in requests_of(ADAPTERS, 420, 1))
    assert summary.ttft_p99_s < 20


def test_no_rule_loads_less_than_the_bound() -> None:
    loads = {rule: small_run(rule).loads_per_min for rule in RULES}
    assert loads.pop("bound") < min(loads.values())
    assert loads["penstock"] < loads["lru-random"]


def test_beladys_rule_evicts_what_is_used_last() -> None:
    drawn = [Request(f"r{i}", float(i), 1, 1, adapter=name) for i, name in enumerate("abcabca")]
    assert fewest_loads(drawn, slots=2, from_s=0) == 5
    assert fewest_loads(drawn, slots=3, from_s=0) == 3
    assert fewest_loads(drawn, slots=3, from_s=1) == 2


def test_a_cold_request_is_answered_within_its_load_and_half_a_second() -> None:
    changes = {"rps": 4.0, "count": 500, "pods": 4, "slots": 16}
    adapters = ADAPTERS.model_copy(update=changes)
    load_s = {version.engine_name: s for version, s in load_times(adapters, 3).items()}
    pool = Pool(Penstock(), adapters, 3)
    drawn = requests_of(adapters, 420, 3)
    pool.run(drawn, 480)
    late = [
        request.ttft_s
        for request in drawn
        if request.ttft_s is None or request.ttft_s > load_s[request.adapter] + 0.5
    ]
    assert len(pool.missed) > 500
    assert len(late) <= 0.001 * len(drawn)


def test_requests_for_an_adapter_are_spread_over_the_pods_that_have_it() -> None:
    one = {"count": 1, "slots": 1, "load_s": (0.1, 0.1)}
    pool = Pool(Penstock(), ADAPTERS.model_copy(update=one), 0)
    name = pool.versions[0].engine_name
    for pod in pool.pods:
        pod.load(name)
    requests = [Request(f"r{i}", 1.0, 100, 1000, adapter=name) for i in range(12)]
    pool.run(requests, until_s=1.5)
    assert [pod.num_open for pod in pool.pods] == [4, 4, 4]


def test_a_hot_adapter_has_a_copy_on_every_pod_within_5_s_of_a_step() -> None:
    """The second most popular adapter gets 20 times as many requests from 200 s on."""
    adapters = ZIPF.model_copy(update={"rps": 0.35 * 8 * capacity_rps()})
    requests, random = requests_of(adapters, 230, 0), Random(0)
    name, _ = Counter(request.adapter for request in requests).most_common(2)[1]
    for number, request in enumerate(requests.copy()):
        if request.adapter == name and request.arrival_s >= 200:
            lengths = request.prompt_tokens, request.output_tokens
            requests += [
                Request(f"s{number}-{i}", random.uniform(200, 230), *lengths, adapter=name)
                for i in range(19)
            ]
    pool = Pool(Penstock(), adapters, 0)
    found: dict[float, int] = {}

    def count(at_s: float) -> None:
        found[at_s] = sum(pod.has(name) for pod in pool.pods)

    for at_s in (199.0, 205.0, 229.0):
        pool.clock.schedule_at(at_s, partial(count, at_s))
    pool.run(requests, 230)
    assert found[199.0] <= 2
    assert found[205.0] == 8
    assert found[229.0] == 8
