"""Attainment of plans that never run more replicas than the requests so far needed.

    need D(t)   smallest fixed number of replicas that serves all requests up to t on time, at least the
                initial replicas; it never falls
    plan        orders f·D(t) replicas, rounded up, and keeps them. It knows at the arrival of a request
                that it would be late. Its factor f is 1 without speculation

`Plan.attainment` is what the plan attains in a simulation, in which queues build up while pods start.

`Plan.bound` limits the attainment of all rules that have at most f·D(t - start-up) replicas ready at any
time t. As long as a rule has at most n, each request is late that would be late if n had been ready from the
start. The bound counts those that are certain to be late before more than n can be ready. So it charges no
rule with a queue from an earlier shortage.

It holds for open loops if more replicas never make a request late. In the simulator this is nearly so:
routing is random, and the prefix caches of more replicas hit less often. In a closed loop the requests
depend on their answers, and the bound is an estimate. It is relaxed towards more attainment:

    start-ups take STARTUP_SHARE of their median
    the numbers of replicas grow in steps of STEP, rounded up
    requests that an idle engine serves late show no need, but those that need a nearly idle engine do

The last of these lets a few requests raise the need, and so the GPU-hours of the plan, to a multiple of the
best fixed number. A rule that scales down takes fewer GPU-hours than the plan: they are not bounded here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, inf

from benchmarks.simulator.panel.load import MAX_REPLICAS, Load
from benchmarks.simulator.panel.lower_bound import STARTUP_SHARE
from benchmarks.simulator.panel.replica import prefill_s

from penstock.sim.clock import Clock
from penstock.sim.quota import Quota
from penstock.sim.report import Summary, summarize
from penstock.sim.request import Request
from penstock.sim.run import rare_collections
from penstock.sim.scenario import Service
from penstock.sim.service import Service as Simulated

FACTORS = (1.0, 1.25, 1.5, 2.0)
STEP = 1.1

# (time, replicas from then on), in order.
Orders = Sequence[tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Late:
    """A late request. certain_s: time after which nothing can make it on time.

    shows_need: an idle engine would have served it on time.
    """

    arrival_s: float
    certain_s: float
    shows_need: bool


@dataclass(frozen=True, slots=True)
class FixedRun:
    """Run with a fixed number of replicas that are ready from the start."""

    replicas: int
    arrivals_s: tuple[float, ...]
    late: tuple[Late, ...]

    @property
    def enough_until_s(self) -> float:
        """Arrival of the first request that shows a need for more replicas."""
        return min((late.arrival_s for late in self.late if late.shows_need), default=inf)


@dataclass(frozen=True, slots=True)
class Plan:
    """Attainment and GPU-hours of a simulated plan, and the bound for its class of rules."""

    attainment: float
    gpu_hours: float
    bound: float


def plans_of(load: Load) -> dict[float, Plan]:
    """Plan for each of FACTORS."""
    runs = list(fixed_runs(load))
    startup_s = STARTUP_SHARE * load.service.engine.start_up.median_s
    plans = {}
    for factor in FACTORS:
        summary = simulated_plan(load, orders_of(runs, factor))
        limit = bound(runs, factor, startup_s)
        plans[factor] = Plan(summary.attainment, summary.gpu_hours, limit)
    return plans


def fixed_runs(load: Load) -> Iterator[FixedRun]:
    """Runs with growing numbers, from the initial replicas to the first number without a need for more."""
    replicas = max(1, load.service.initial_replicas or load.service.min_replicas)
    while True:
        run = fixed_run(load, replicas)
        yield run
        if run.enough_until_s == inf or replicas >= MAX_REPLICAS:
            return
        replicas = min(MAX_REPLICAS, max(replicas + 1, ceil(STEP * replicas)))


def fixed_run(load: Load, replicas: int) -> FixedRun:
    """Simulate a fixed number of replicas that are ready from the start."""
    service = load.service.model_copy(update={"initial_replicas": replicas})
    requests = _simulated(load, service, ()).gateway.requests
    objectives = service.objectives
    missed = (r for r in requests if not r.meets(objectives.ttft_s, objectives.tpot_s))
    return FixedRun(
        replicas,
        tuple(request.arrival_s for request in requests),
        tuple(_late(service, request) for request in missed),
    )


def orders_of(runs: Sequence[FixedRun], factor: float) -> Orders:
    """Orders of the plan: the replicas of the next run as soon as those of a run are too few."""
    orders, at_s = [], 0.0
    for run in runs:
        orders.append((at_s, min(MAX_REPLICAS, ceil(factor * run.replicas))))
        at_s = max(at_s, run.enough_until_s)
    return orders


def simulated_plan(load: Load, orders: Orders) -> Summary:
    """Simulate orders from the initial replicas on."""
    return summarize(_simulated(load, load.service, orders), load.scenario.duration_s)


def bound(runs: Sequence[FixedRun], factor: float, startup_s: float) -> float:
    """Upper bound on the attainment with at most `factor` times the need of startup_s ago."""
    orders = orders_of(runs, factor)
    ends_s = [*(at_s + startup_s for at_s, _ in orders[1:]), inf]
    begin_s, num_arrivals, num_late = 0.0, 0, 0
    for (_, replicas), end_s in zip(orders, ends_s, strict=True):
        # The last run stands for all larger numbers: they serve the same requests on time.
        run = next((run for run in runs if run.replicas >= replicas), runs[-1])
        num_arrivals += sum(begin_s <= arrival_s < end_s for arrival_s in run.arrivals_s)
        num_late += sum(begin_s <= x.arrival_s and x.certain_s < end_s for x in run.late)
        begin_s = end_s
    return 1 - num_late / num_arrivals if num_arrivals else 1.0


def _simulated(load: Load, service: Service, orders: Orders) -> Simulated:
    """Run with replicas as ordered; no rule is asked."""
    clock = Clock()
    scenario = load.scenario.model_copy(update={"services": (service,)})
    run = Simulated(service, scenario, clock, Quota(), load.seed, "static", {})
    run.scaler.ask = lambda replicas: None
    for at_s, replicas in orders:
        clock.schedule_at(at_s, partial(run.fleet.scale, replicas))
    run.begin()
    with rare_collections():
        clock.run(scenario.duration_s + scenario.tail_s)
    return run


def _late(service: Service, request: Request) -> Late:
    certain_s = request.arrival_s + service.ttft_s
    if request.first_token_s is not None and request.first_token_s <= certain_s:
        certain_s = request.first_token_s + service.tpot_s * (request.output_tokens - 1)
    shows_need = request.outcome != "failed" and _meets_alone(service, request)
    return Late(request.arrival_s, certain_s, shows_need)


def _meets_alone(service: Service, request: Request) -> bool:
    """Whether an idle engine without the request's prefix would serve it on time."""
    engine, times = service.engine, service.engine.times
    chunks = ceil(request.prompt_tokens / engine.max_num_batched_tokens)
    ttft_s = chunks * times.fixed_s + prefill_s(engine, request.prompt_tokens)
    attended = request.prompt_tokens + request.output_tokens / 2
    tpot_s = times.fixed_s + times.sequence_s + times.kv_token_s * attended
    return ttft_s <= service.ttft_s and (request.output_tokens == 1 or tpot_s <= service.tpot_s)
