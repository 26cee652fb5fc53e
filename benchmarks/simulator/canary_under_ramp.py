"""Measures the cost of a canary in attainment and GPU-hours while the load grows.

.venv/bin/python -m benchmarks.simulator.canary_under_ramp [--scenario llm-d-ramp] [--at 180] [--seeds 10]

It simulates the same hour with and without a rollout of an equal revision. Scaler, planner, traffic split and
judge are the production code. Exits with 1 if attainment falls by more than one percentage point.
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from benchmarks.options import option_parser

from penstock.sim.release import Release
from penstock.sim.report import Estimate, Summary, summaries_of
from penstock.sim.run import run
from penstock.sim.scenario import Scenario, load

BAR = 0.01


def one(scenario: Scenario, policy: str, seed: int) -> tuple[Summary, list[tuple[float, str, str]]]:
    done = run(scenario, policy, seed)
    rollout = done.services[0].rollout
    return summaries_of(done)[0], list(rollout.phases) if rollout else []


def compare(options: argparse.Namespace) -> bool:
    plain = load(options.scenario)
    comparison = "Stable" if options.without_control else "FreshControl"
    rollout = {"strategy": "Canary", "canary": {"comparison": comparison}}
    release = Release(at_s=options.at, rollout=rollout, factor=options.factor)
    runs = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for name, scenario in (
            ("without", plain),
            ("with a canary", plain.with_each(release=release)),
        ):
            work = partial(one, scenario, options.policy)
            runs[name] = list(pool.map(work, range(options.seeds)))
    for name, done in runs.items():
        told = {
            field: Estimate.of(getattr(summary, field) for summary, _ in done)
            for field in ("attainment", "gpu_hours", "mean_replicas", "failed", "shed")
        }
        print(f"{name}: " + ", ".join(f"{f} {e.mean:.4g} ± {e.ci95:.2g}" for f, e in told.items()))
    pairs = list(zip(*runs.values(), strict=True))
    fall = Estimate.of(before.attainment - after.attainment for (before, _), (after, _) in pairs)
    more = Estimate.of(after.gpu_hours / before.gpu_hours - 1 for (before, _), (after, _) in pairs)
    print(
        f"attainment falls by {100 * fall.mean:.2f} ± {100 * fall.ci95:.2f} points, "
        f"at most {100 * max(fall.per_seed):.2f}; {100 * more.mean:+.1f} ± {100 * more.ci95:.1f} % GPU-hours"
    )
    for seed, (_, (_, phases)) in enumerate(pairs):
        print(f"seed {seed}: " + ", ".join(f"{phase} {at_s:.0f} s" for at_s, phase, _ in phases))
    return fall.mean <= BAR


if __name__ == "__main__":
    parser = option_parser(
        __doc__, scenario="llm-d-ramp", policy="penstock", without_control=False, seeds=10, jobs=1
    )
    parser.add_argument("--at", type=float, default=180.0, help="seconds until the release")
    parser.add_argument(
        "--factor", type=float, default=1.0, help="an iteration takes so much longer"
    )
    sys.exit(0 if compare(parser.parse_args()) else 1)
