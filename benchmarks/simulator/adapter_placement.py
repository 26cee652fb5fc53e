"""Compares rules of adapter placement in the simulator.

    python -m benchmarks.simulator.adapter_placement --seeds 20 --jobs 2
    python -m benchmarks.simulator.adapter_placement bursts shifts --rules penstock resident-first --seeds 5

A case is a workload at a load, such as `zipf-60`: 1,000 adapters, Zipf 1.0, at 60 % of the requests that 8
pods can answer with full batches. For each case and rule it prints the time to the first token, loads and
misses, with 95 % intervals over seeds, and what the first rule saves against each other rule, seed by seed.
For independent requests it prints what a rule without knowledge of coming requests can reach at best.
Seeds start at 0; those from 100 on were used to choose the constants.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import cache
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from benchmarks.simulator.adapter_bounds import IndependentRequests, is_independent

from penstock.sim.adapters.run import RULES, Summary, run
from penstock.sim.adapters.scenario import Adapters, AdapterScenario
from penstock.sim.report import Estimate
from penstock.sim.workload.lengths import LogNormal

ZIPF = Adapters(count=1000, pods=8, slots=16, loads_at_once=1, rps=1.0)
DURATION_S = 700.0


@cache
def capacity_rps() -> float:
    """Requests per second of one pod with a full batch of mean requests and no adapters."""
    engine = ZIPF.engine
    prompt, output = _mean(ZIPF.prompt), _mean(ZIPF.output)
    batch = engine.max_num_seqs
    decode_s = engine.times.iteration_s(0, 0.0, batch, int(batch * (prompt + output / 2)))
    prefill_s = engine.times.prompt_token_s * prompt + engine.times.pair_s * prompt * prompt / 2
    return 1 / (output * decode_s / batch + prefill_s)


def _mean(length: LogNormal) -> float:
    random = Random(0)
    return sum(length.draw(random) for _ in range(20_000)) / 20_000


def cases() -> dict[str, AdapterScenario]:
    whole = ZIPF.pods * capacity_rps()

    def case(load: float = 0.6, **changes: Any) -> AdapterScenario:
        adapters = ZIPF.model_copy(update={"rps": load * whole, **changes})
        return AdapterScenario(name="", duration_s=DURATION_S, adapters=adapters)

    return {
        "zipf-40": case(0.4),
        "zipf-60": case(),
        "zipf-80": case(0.8),
        "parallel-40": case(0.4, loads_at_once=4),
        "parallel-60": case(loads_at_once=4),
        "parallel-80": case(0.8, loads_at_once=4),
        "fast-loads": case(load_s=(0.1, 0.1)),
        "slow-loads": case(load_s=(1.0, 1.0)),
        "bursts": case(burst_share=0.2, cv=2.0),
        "groups": case(burst_share=0.2, group_size=4),
        "shifts": case(shift_s=200.0),
        "new": case(new_share=0.3),
        "many": case(count=5000),
    }


Result = tuple[str, str, int, Summary]


def simulate(work: tuple[str, str, int]) -> Result:
    case, rule, seed = work
    return case, rule, seed, run(cases()[case], rule, seed)


def report(case: str, by_rule: Mapping[str, Mapping[int, Summary]]) -> None:
    first, own = next(iter(by_rule.items()))
    columns = (
        "rule", "p50 s", "p99 s", "mean s", "loads/min", "loads/request", "loads/served", "misses", "refused",
        f"p99 that `{first}` saves",
    )  # fmt: skip
    print(f"\n{case}\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for rule, results in by_rule.items():
        runs = list(results.values())
        values = [
            spread([s.ttft_p50_s for s in runs], 3),
            spread([s.ttft_p99_s for s in runs], 2),
            spread([s.ttft_mean_s for s in runs], 3),
            spread([s.loads_per_min for s in runs], 0),
            spread([s.loads_per_request for s in runs], 3),
            spread([s.loads_per_served for s in runs], 3),
            spread([100 * s.miss_share for s in runs], 1) + " %",
            str(sum(s.refused for s in runs)),
        ]
        both = sorted(own.keys() & results.keys())
        saved = [100 * (1 - own[s].ttft_p99_s / results[s].ttft_p99_s) for s in both]
        values.append("" if rule == first else spread(saved, 1) + " %")
        print(f"| `{rule}` | " + " | ".join(values) + " |")


def report_bounds(case: str, by_rule: Mapping[str, Mapping[int, Summary]]) -> None:
    """Prints the bounds of rules that do not know the coming requests, and what they save at most."""
    own = next(iter(by_rule))
    others = {rule: runs for rule, runs in by_rule.items() if rule not in (own, "bound")}
    scenario = cases()[case]
    if not others or not is_independent(scenario.adapters):
        return
    best = min(others, key=lambda rule: fmean(s.ttft_p99_s for s in others[rule].values()))
    slots = scenario.adapters.pods * scenario.adapters.slots
    drawn = {seed: IndependentRequests.of(scenario, seed) for seed in others[best]}
    fewest = {seed: each.fewest_misses(slots) for seed, each in drawn.items()}
    print("\nBest case without knowledge of the coming requests:")
    print(f"- loads/request: {spread(list(fewest.values()), 3)}")
    limits = {"": dict.fromkeys(drawn, 1.0)}
    if lru := others.get("lru-random"):
        half = {seed: lru[seed].loads_per_request / 2 for seed in drawn}
        limits[" with half the loads/request of `lru-random`"] = half
    for name, most_misses in limits.items():
        if any(most_misses[seed] < fewest[seed] for seed in drawn):
            print(f"- p99{name}: none, more loads are needed")
            continue
        lowest_s = {s: each.lowest_ttft_s(slots, most_misses[s]) for s, each in drawn.items()}
        saved = [100 * (1 - lowest_s[s] / others[best][s].ttft_p99_s) for s in drawn]
        values = f"{spread(list(lowest_s.values()), 2)} s, {spread(saved, 1)} % below `{best}`"
        print(f"- p99{name}: {values}")


def spread(values: Sequence[float], digits: int) -> str:
    found = Estimate.of(values)
    return f"{found.mean:.{digits}f} ± {found.ci95:.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=["zipf-40", "zipf-60", "zipf-80"])
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=list(RULES))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file of runs: what it has is not run again")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    done = finished(options.json) if options.json and options.json.exists() else {}
    work = [(c, r, s) for c in options.cases for s in seeds for r in options.rules]
    with ProcessPoolExecutor(options.jobs) as pool:
        for *key, summary in pool.map(simulate, [w for w in work if w not in done]):
            case, rule, seed = key
            done[case, rule, seed] = summary
            if options.json:
                with options.json.open("a") as file:
                    row = {"case": case, "rule": rule, "seed": seed, **asdict(summary)}
                    print(json.dumps(row), file=file)
    for case in options.cases:
        by_rule = {r: {s: done[case, r, s] for s in seeds} for r in options.rules}
        report(case, by_rule)
        report_bounds(case, by_rule)


def finished(path: Path) -> dict[tuple[str, str, int], Summary]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {(r.pop("case"), r.pop("rule"), r.pop("seed")): Summary(**r) for r in rows}


if __name__ == "__main__":
    main()
