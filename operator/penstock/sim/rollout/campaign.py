"""Simulates many canaries of one scenario with one judge, and summarizes the outcomes."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from penstock.core.spec.canary import CanarySpec
from penstock.sim.rollout.growth import Growth
from penstock.sim.rollout.interval import of_quantile, of_share
from penstock.sim.rollout.judges import Decided, JudgeName, make_judge
from penstock.sim.rollout.minutes import Objectives, history, live, objectives
from penstock.sim.rollout.scenario import Scenario

# The control gets the same weight, and stable keeps a share.
MAX_WEIGHT = 0.49


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of a simulated canary. exposed: requests answered by it before the decision."""

    decided: Decided
    exposed: int


def simulate(
    name: JudgeName, scenario: Scenario, runs: int, seed: int, jobs: int = 1, alpha: float = 0.01
) -> list[Trial]:
    """Simulate `runs` canaries. Run i draws the same requests for every judge."""
    spec = CanarySpec(alpha=alpha, max_duration_s=scenario.hours * 3600, max_weight=MAX_WEIGHT)
    one = partial(_trial, name, scenario, spec, objectives(scenario), seed)
    if jobs == 1:
        return [one(index) for index in range(runs)]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(one, range(runs), chunksize=max(1, runs // (8 * jobs))))


def _trial(
    name: JudgeName, scenario: Scenario, spec: CanarySpec, limits: Objectives, seed: int, index: int
) -> Trial:
    draw = np.random.default_rng([seed, index])
    judge = make_judge(name, spec, limits, history(scenario, draw))
    exposed, growth = 0, Growth()
    for minute in live(scenario, limits, draw, growth):
        exposed += minute.canary.requests
        if decided := judge.observe(minute):
            return Trial(decided, exposed)
        if scenario.grows:
            growth.update((minute.index + 1) * 60.0, judge.weight / spec.min_weight)
    return Trial(Decided("undecided", scenario.hours * 3600, "the time is over"), exposed)


def summary(trials: list[Trial]) -> dict[str, object]:
    """Share of each outcome with its exact 95 % interval, and the time to a decision.

    median_minutes, p95_minutes: time to the more frequent of abort and promotion, over the runs with that
    outcome; None if no run was decided.
    """
    outcomes = [trial.decided.outcome for trial in trials]
    result: dict[str, object] = {"runs": len(trials)}
    for outcome in ("aborted", "promoted", "undecided"):
        count = outcomes.count(outcome)
        result[outcome] = count / len(trials)
        result[f"{outcome}_interval"] = of_share(count, len(trials))
    main = "aborted" if outcomes.count("aborted") >= outcomes.count("promoted") else "promoted"
    minutes = sorted(trial.decided.at_s / 60 for trial in trials if trial.decided.outcome == main)
    result["minutes_of"] = main if minutes else None
    for label, q in (("median_minutes", 0.5), ("p95_minutes", 0.95)):
        result[label] = minutes[min(len(minutes) - 1, int(q * len(minutes)))] if minutes else None
        result[f"{label}_interval"] = of_quantile(minutes, q) if minutes else None
    result["exposed_requests"] = float(np.median([trial.exposed for trial in trials]))
    return result
