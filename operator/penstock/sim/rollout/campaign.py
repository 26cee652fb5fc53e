"""Many canaries of one kind before one judge, and what came of them."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from penstock.core.spec.canary import CanarySpec
from penstock.sim.rollout.growth import Growth
from penstock.sim.rollout.interval import of_quantile, of_share
from penstock.sim.rollout.judges import Decided, JudgeName, appoint
from penstock.sim.rollout.minutes import Objectives, history, live, objectives
from penstock.sim.rollout.scenario import Scenario

# A control takes as much, and stable keeps a share.
MAX_WEIGHT = 0.49


@dataclass(frozen=True, slots=True)
class Life:
    """exposed: requests that the canary answered before it was decided."""

    decided: Decided
    exposed: int


def simulate(
    name: JudgeName, scenario: Scenario, runs: int, seed: int, jobs: int = 1, alpha: float = 0.01
) -> list[Life]:
    """Run i draws the same requests for every judge."""
    spec = CanarySpec(alpha=alpha, max_duration_s=scenario.hours * 3600, max_weight=MAX_WEIGHT)
    one = partial(_life, name, scenario, spec, objectives(scenario), seed)
    if jobs == 1:
        return [one(index) for index in range(runs)]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(one, range(runs), chunksize=max(1, runs // (8 * jobs))))


def _life(
    name: JudgeName, scenario: Scenario, spec: CanarySpec, limits: Objectives, seed: int, index: int
) -> Life:
    draw = np.random.default_rng([seed, index])
    judge = appoint(name, spec, limits, history(scenario, draw))
    exposed, growth = 0, Growth()
    for minute in live(scenario, limits, draw, growth):
        exposed += minute.canary.requests
        if decided := judge.see(minute):
            return Life(decided, exposed)
        if scenario.grows:
            growth.look((minute.index + 1) * 60.0, judge.weight / spec.min_weight)
    return Life(Decided("undecided", scenario.hours * 3600, "the time was up"), exposed)


def summary(lives: list[Life]) -> dict[str, object]:
    """Shares with exact 95 % intervals. median_minutes, p95_minutes: to the more frequent of abort
    and promotion, over the runs that ended so; None where no run was decided."""
    outcomes = [life.decided.outcome for life in lives]
    result: dict[str, object] = {"runs": len(lives)}
    for outcome in ("aborted", "promoted", "undecided"):
        count = outcomes.count(outcome)
        result[outcome] = count / len(lives)
        result[f"{outcome}_interval"] = of_share(count, len(lives))
    main = "aborted" if outcomes.count("aborted") >= outcomes.count("promoted") else "promoted"
    minutes = sorted(life.decided.at_s / 60 for life in lives if life.decided.outcome == main)
    result["minutes_of"] = main if minutes else None
    for label, q in (("median_minutes", 0.5), ("p95_minutes", 0.95)):
        result[label] = minutes[min(len(minutes) - 1, int(q * len(minutes)))] if minutes else None
        result[f"{label}_interval"] = of_quantile(minutes, q) if minutes else None
    result["exposed_requests"] = float(np.median([life.exposed for life in lives]))
    return result
