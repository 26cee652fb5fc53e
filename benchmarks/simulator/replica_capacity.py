"""Compares the capacity of a replica in closed form with the rate that a simulated replica sustains.

    python -m benchmarks.simulator.replica_capacity [--uses chat rag] [--profiles llama-3.1-8b-a100]

The closed form has the model and the mix that the scaling rule learned from a replica under 70 % load for
20 minutes, beginning with the prior of the accelerator; and once more the simulator's profile and mix.

Capacity is the rate beyond which a queue grows without end, or TPOT fails. So the sustained rate is that of
`penstock simulate --capacity` with a long TTFT: the highest rate of Poisson arrivals at which 99 % of the
requests keep TPOT and get their first token within 1/36 of the run's duration. That is time enough for random
bursts, but not for a queue that grows by 3 % of the arrivals. A run has 4,000 requests and takes at least
half an hour.

The last column is the sustained rate with a short TTFT: four times the prefill of a long prompt. It is lower,
as random bursts have to fit that time as well. The rule adds the margin for them to the load of the whole
service, where many replicas share a burst, so it is no part of the capacity.

Lengths are the geometric means of the ranges in panel/lengths.py. Exits with 1 if a ratio misses the bar.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from random import Random
from statistics import mean

from benchmarks.options import option_parser
from benchmarks.simulator.panel.lengths import USES, Lengths, Range
from benchmarks.simulator.panel.replica import demand_of, prefill_s, shared_tokens

from penstock.core.engine_time.iteration import IterationModel
from penstock.core.scaling.by_objectives.rule import ObjectivesRule
from penstock.core.scaling.by_objectives.state import ObjectivesState
from penstock.core.scaling.learned.capacity import Capacity, EngineLimits, Mix, capacity
from penstock.core.scaling.learned.priors import prior
from penstock.core.scaling.rule import Bounds, Decision
from penstock.core.scaling.signals import Observation, attended_tokens
from penstock.core.spec.objectives import UNBOUNDED_S, Objectives
from penstock.sim.capacity import alone, sustained_rps
from penstock.sim.clock import Clock
from penstock.sim.profile import Profile, profile
from penstock.sim.quota import Quota
from penstock.sim.report import Estimate
from penstock.sim.scenario import Scenario, Service
from penstock.sim.service import Service as SimulatedService
from penstock.sim.workload import lengths
from penstock.sim.workload.generate import RequestSource

NAMES = ("chat", "rag", "code", "reasoning")
PROFILES = ("llama-3.1-8b-l4", "llama-3.1-8b-a100", "llama-3.3-70b-h100-tp4")
# TPOT objectives as multiples of an iteration of an idle engine; infinite for none.
TPOT_FACTORS = (2.0, inf)
# The short TTFT objective: this multiple of the prefill of a long prompt, and at least so many seconds.
TTFT_FACTOR, LEAST_TTFT_S = 4.0, 0.5
LEARNING_S, LEARNING_LOAD, LEARNING_TTFT_S = 1200.0, 0.7, 6.0
NUM_REQUESTS, LEAST_RUN_S, TTFT_SHARE = 4000, 1800.0, 1 / 36
PREFIX_GROUPS = 8
DRAWS = 20_000
BAR = 0.15


class Learner:
    """Scaling rule that keeps its last state for the benchmark to read."""

    def __init__(self, engine: Profile) -> None:
        self.rule = ObjectivesRule(prior(("nvidia.com/gpu", engine.gpus), {"gpu": engine.gpu}))
        self.period_s = self.rule.period_s
        self.state = self.rule.initial()

    def initial(self) -> ObjectivesState:
        return self.state

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: ObjectivesState
    ) -> tuple[Decision, ObjectivesState]:
        decision, self.state = self.rule.decide(objectives, bounds, seen, state)
        return decision, self.state


@dataclass(frozen=True, slots=True)
class Case:
    """A use of one profile with one TPOT objective. tpot_s: UNBOUNDED_S for none."""

    use: str
    engine: Profile
    tpot_s: float

    @property
    def lengths(self) -> lengths.Mix:
        use = USES[self.use]
        prompt = _length(use.prompt, use.tails[0], use.max_prompt)
        output = _length(use.output, use.tails[1], use.max_output)
        share = mean(use.prefix_share)
        one = lengths.RequestClass(
            prompt=prompt, output=output, prefix_share=share, prefix_groups=PREFIX_GROUPS
        )
        return lengths.Mix(classes=(one,))

    @property
    def short_ttft_s(self) -> float:
        demand = demand_of(Lengths((self.lengths,), self.engine.name), seed=0)
        return max(LEAST_TTFT_S, TTFT_FACTOR * demand.long_prefill_s)

    def service(self, ttft_s: float) -> Service:
        """Service with one replica. A request is shed when it misses the TTFT objective at the gateway."""
        rps = 1.0  # of no effect: the load is set by each run
        workload = {"kind": "rate", "points": ((0, rps), (1, rps)), "mixes": (self.lengths,)}
        return Service.model_validate({
            "profile": self.engine.name, "workload": workload, "ttft_s": ttft_s,
            "tpot_s": self.tpot_s, "max_wait_s": max(60.0, ttft_s),
        })  # fmt: skip

    def capacity(self, model: IterationModel, mix: Mix) -> Capacity:
        limits = EngineLimits(self.engine.kv_tokens, self.engine.max_num_seqs)
        return capacity(model, mix, limits, Objectives(tpot_s=self.tpot_s))


@dataclass(frozen=True, slots=True)
class Result:
    """Rates of one seed in requests/s."""

    learned: Capacity
    true: Capacity
    sustained_rps: float
    short_ttft_rps: float


def _length(median: Range, tail: Range, most: int) -> lengths.LogNormal:
    tokens = sqrt(median[0] * median[1])
    return lengths.LogNormal(
        median=round(tokens), p99=round(tokens * sqrt(tail[0] * tail[1])), max=most
    )


def true_capacity(case: Case) -> Capacity:
    """Capacity by the profile, and the means of many requests with every shared prefix cached."""
    engine, source = case.engine, RequestSource((case.lengths,), Random(0))
    requests = [source.draw(0.0) for _ in range(DRAWS)]
    prompt = mean(r.prompt_tokens for r in requests)
    output = mean(r.output_tokens for r in requests)
    cached = [shared_tokens(r) for r in requests]
    uncached = prompt - mean(cached)
    attended = mean(attended_tokens(r.prompt_tokens, r.output_tokens) for r in requests) / output
    shared = mean(c * r.output_tokens for c, r in zip(cached, requests, strict=True)) / output
    prompt_s = mean(
        prefill_s(engine, r.prompt_tokens, c) for c, r in zip(cached, requests, strict=True)
    )
    times, halfway = engine.times, prompt + output / 2
    model = IterationModel(times.fixed_s, prompt_s / uncached, times.sequence_s, times.kv_token_s)
    mix = Mix(prompt, uncached, output, (attended - shared) / halfway, attended / halfway)
    return case.capacity(model, mix)


def learned_capacity(case: Case, rps: float, seed: int) -> Capacity:
    """Capacity by what the rule has learned after LEARNING_S at this rate."""
    service = alone(case.service(LEARNING_TTFT_S), case.lengths, rps, LEARNING_S)
    scenario = Scenario(name="learning", duration_s=LEARNING_S, services=(service,))
    clock, learner = Clock(), Learner(case.engine)
    running = SimulatedService(service, scenario, clock, Quota({}), seed, "static", {})
    running.scaler.rule = learner
    running.begin()
    clock.run(LEARNING_S)
    mix = learner.state.traffic.mix
    assert mix is not None
    return case.capacity(learner.state.fit.model, mix)


def measure(case: Case, seed: int) -> Result:
    true = true_capacity(case)
    run_s = max(LEAST_RUN_S, NUM_REQUESTS / true.rate)

    def sustained(ttft_s: float) -> float:
        return sustained_rps(
            case.service(ttft_s), case.lengths, run_s=run_s, seeds=1, first_seed=seed,
            first_rps=1.5 * true.rate,
        )  # fmt: skip

    return Result(
        learned_capacity(case, LEARNING_LOAD * true.rate, seed),
        true,
        sustained(TTFT_SHARE * run_s),
        sustained(case.short_ttft_s),
    )


def cases(
    uses: Sequence[str], profiles: Sequence[str], tpot_factors: Sequence[float]
) -> Iterator[Case]:
    for name in profiles:
        engine = profile(name)
        for factor in tpot_factors:
            tpot_s = min(UNBOUNDED_S, factor * engine.times.fixed_s)
            yield from (Case(use, engine, tpot_s) for use in uses)


def print_row(case: Case, results: Sequence[Result]) -> bool:
    """Print a case as a row of a Markdown table. Returns whether both ratios hold the bar."""

    def cell(estimate: Estimate, digits: int) -> str:
        return f"{estimate.mean:.{digits}f} ± {estimate.ci95:.{digits}f}"

    rates = [
        Estimate.of(values)
        for values in (
            [r.learned.rate for r in results],
            [r.sustained_rps for r in results],
            [r.short_ttft_rps for r in results],
        )
    ]
    ratios = [
        Estimate.of(r.learned.rate / r.sustained_rps for r in results),
        Estimate.of(r.true.rate / r.sustained_rps for r in results),
    ]
    limits = " or ".join(sorted({r.learned.limit for r in results}))
    tpot = "none" if case.tpot_s == UNBOUNDED_S else f"{1e3 * case.tpot_s:.0f} ms"
    learned, sustained, short_ttft = (cell(rate, 3) for rate in rates)
    by_learned, by_true = (cell(ratio, 2) for ratio in ratios)
    print(
        f"| {case.engine.name} | {tpot} | {case.use} | {learned} | {results[0].true.rate:.3f} | {limits} "
        f"| {sustained} | {by_learned} | {by_true} | {short_ttft} |",
        flush=True,
    )
    return all(abs(ratio.mean - 1) <= BAR for ratio in ratios)


def main() -> int:
    parser = option_parser(__doc__, seeds=3)
    parser.add_argument("--uses", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--profiles", nargs="+", default=PROFILES)
    parser.add_argument("--tpot-factors", nargs="+", type=float, default=TPOT_FACTORS)
    options = parser.parse_args()
    print(
        "| profile | TPOT | use | learned | true | limit | sustained "
        "| learned / sustained | true / sustained | short TTFT |"
    )
    print("|" + " --- |" * 10)
    found = [
        print_row(case, [measure(case, seed) for seed in range(options.seeds)])
        for case in cases(options.uses, options.profiles, options.tpot_factors)
    ]
    print(f"{sum(found)} of {len(found)} cases within {BAR:.0%}")
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
