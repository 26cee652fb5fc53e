"""The lower bound: no plan of a simulated service that attains its objectives costs less.

Small random loads are simulated with every plan of a coarse grid. Parts of the bound are checked alone: the
engine time of requests against the busy time of simulated engines, and arrivals against those of a run.
"""

from itertools import product
from random import Random

import pytest
from benchmarks.simulator.panel.load import Load, draw_load
from benchmarks.simulator.panel.lower_bound import lower_bound_gpu_hours
from benchmarks.simulator.panel.requests import arrivals_of
from benchmarks.simulator.panel.work import least_work

from penstock.sim import service
from penstock.sim.baselines.oracle import Oracle
from penstock.sim.clock import Clock
from penstock.sim.quota import Quota
from penstock.sim.report import summarize
from penstock.sim.scenario import Scenario, Service
from penstock.sim.workload.generate import Closed, Rate
from penstock.sim.workload.lengths import LogNormal, Mix, RequestClass

ENGINE = "qwen2.5-0.5b-cpu"
SLOTS, SLOT_S = 3, 30.0
DURATION_S = SLOTS * SLOT_S


def small_load(seed: int) -> Load:
    """A minute and a half of bursts for one to three slow engines."""
    draw = Random(f"small/{seed}")
    mix = Mix(
        classes=(
            RequestClass(
                prompt=LogNormal(median=draw.choice([200, 1000]), p99=3000),
                output=LogNormal(median=draw.choice([4, 60, 200]), p99=500),
                prefix_share=draw.choice([0.0, 0.5]),
            ),
        )
    )
    if seed % 3 == 2:
        users = ((0.0, draw.randint(4, 15)), (DURATION_S / 2, draw.randint(4, 15)))
        workload: Rate | Closed = Closed(users=users, think_s=draw.uniform(2, 10), mixes=(mix,))
    else:
        times = [0.0, *sorted(draw.uniform(20, DURATION_S) for _ in range(3)), DURATION_S]
        points = tuple((at_s, draw.choice([0.2, 1.0, 2.0, 4.0])) for at_s in times)
        workload = Rate(points=points, cv=draw.choice([0.5, 1, 4]), mixes=(mix,))
    spec = Service(
        profile=ENGINE, workload=workload, ttft_s=draw.choice([2.0, 6.0]),
        tpot_s=draw.choice([0.06, 0.1, 0.3]), attainment=draw.choice([0.8, 0.9, 0.95]),
        initial_replicas=draw.randint(1, 2), startup_s=draw.choice([5.0, 20.0]),
    )  # fmt: skip
    scenario = Scenario(name="small", duration_s=DURATION_S, tail_s=60, services=(spec,))
    return Load(seed, "small", "small", 1.0, 1.0, 1.0, scenario)


def simulated(load: Load, plan: tuple[int, ...]) -> service.Service:
    """Run a plan with the desired replicas of each slot. Pods are requested one start-up time ahead."""
    clock = Clock()
    run = service.Service(
        load.service, load.scenario, clock, Quota(), load.seed, "static", {"replicas": "1"}
    )
    levels = tuple((i * SLOT_S, replicas) for i, replicas in enumerate(plan))
    ahead_s = load.service.engine.start_up.median_s
    run.scaler.rule = Oracle(levels, ahead_s=ahead_s, period_s=2.5)
    run.begin()
    clock.run(load.scenario.duration_s + load.scenario.tail_s)
    return run


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_no_plan_that_attains_costs_less(seed: int) -> None:
    load = small_load(seed)
    costs = []
    for plan in product((1, 2, 3), repeat=SLOTS):
        summary = summarize(simulated(load, plan), DURATION_S)
        if summary.attainment >= load.service.attainment:
            costs.append(summary.gpu_hours)
    bound = lower_bound_gpu_hours(load)
    assert bound >= 0.999 * DURATION_S / 3600
    assert bound <= min(costs, default=float("inf")) + 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_engines_are_busy_for_at_least_the_work_of_attained_requests(seed: int) -> None:
    load = small_load(seed)
    run = simulated(load, (3,) * SLOTS)  # no pod is removed before the end
    objectives = load.service.objectives
    attained = [r for r in run.gateway.requests if r.meets(objectives.ttft_s, objectives.tpot_s)]
    works = least_work(load.service.engine, load.service.tpot_s, attained)
    busy_s = sum(pod.engine.reading().busy_s for pod in run.fleet.pods.values())
    assert attained
    assert sum(work.prefill_s + work.decode_s for work in works) <= busy_s


def test_arrivals_are_those_of_a_run() -> None:
    load = small_load(0)
    requests = simulated(load, (1,) * SLOTS).gateway.requests
    expected = arrivals_of(load)
    assert [(r.arrival_s, r.prompt_tokens, r.output_tokens, r.prefix) for r in requests] == [
        (r.arrival_s, r.prompt_tokens, r.output_tokens, r.prefix) for r in expected
    ]


def test_a_load_of_the_panel_has_a_bound() -> None:
    load = draw_load(2001)
    hours = load.scenario.duration_s * load.service.engine.gpus / 3600
    assert 1.0 <= lower_bound_gpu_hours(load) / hours < 100
