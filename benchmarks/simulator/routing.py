"""Compares routing rules in the simulator: Penstock's, and those of other routers.

    python -m benchmarks.simulator.routing --traces traces --seeds 5 --jobs 2
    python -m benchmarks.simulator.routing shared-16 chats --rules penstock llm-d dynamo --seeds 3

A case is a load on a fixed number of engines; some have an event, such as an engine that restarts. For each
case and rule it prints the time to the first token, the time per further token, tokens/s, hits and the
imbalance of load, with 95 % intervals over seeds, and the p90 of the time to the first token relative to
`round-robin`, seed by seed. For events it prints the hits of conversations in their turns before and after
it. Seeds start at 0; those from 100 on are for choosing constants.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from penstock.sim.processes import map_in_processes
from penstock.sim.report import Estimate
from penstock.sim.routing.registry import PICKERS
from penstock.sim.routing_runs.recovery import Recovery
from penstock.sim.routing_runs.run import Summary, run
from penstock.sim.routing_runs.scenario import (
    Canary,
    Event,
    Restart,
    RoutingScenario,
    Scale,
)
from penstock.sim.traces.source import Trace
from penstock.sim.workload.chats import Chats
from penstock.sim.workload.generate import Rate
from penstock.sim.workload.lengths import Fixed, LogNormal, Mix, RequestClass

BASELINE = "round-robin"
ENGINE = "qwen3-32b-h100-tp2"
MOONCAKE = "mooncake-conversation.jsonl"


def shared(rps: float) -> RoutingScenario:
    """150 groups with 6,000 shared of 7,200 prompt tokens on 8 engines, as in llm-d's benchmark."""
    requests = RequestClass(
        prompt=Fixed(tokens=7200),
        output=LogNormal(median=300, p99=1000, max=1000),
        prefix_share=6000 / 7200,
        prefix_groups=150,
    )
    return RoutingScenario(
        name=f"shared-{rps:g}",
        duration_s=180.0,
        profile=ENGINE,
        replicas=8,
        workload=poisson(rps, 180.0, requests),
    )


def no_prefix(rps: float) -> RoutingScenario:
    """Prompts without a shared prefix, with lengths of a heavy tail, on 6 engines."""
    requests = RequestClass(
        prompt=LogNormal(median=1200, p99=20_000, max=60_000),
        output=LogNormal(median=200, p99=1500, max=4000),
    )
    return RoutingScenario(
        name="no-prefix",
        duration_s=240.0,
        profile=ENGINE,
        replicas=6,
        workload=poisson(rps, 240.0, requests),
    )


def poisson(rps: float, duration_s: float, requests: RequestClass) -> Rate:
    points = ((0.0, rps), (duration_s, rps))
    return Rate(points=points, mixes=(Mix(classes=(requests,)),))


def chats(name: str, replicas: int, *events: Event) -> RoutingScenario:
    """Conversations with a system prompt that all share."""
    workload = Chats(
        chats_per_s=0.5 * replicas,
        mean_turns=8.0,
        think_s=15.0,
        system_tokens=1024,
        message=LogNormal(median=400, p99=6000, max=12_000),
        answer=LogNormal(median=200, p99=900, max=2000),
        block_tokens=128,
    )
    return RoutingScenario(
        name=name,
        duration_s=300.0,
        warm_up_s=90.0,
        profile=ENGINE,
        replicas=replicas,
        workload=workload,
        events=events,
    )


def mooncake(traces: Path, seed: int) -> RoutingScenario:
    """Ten minutes of Mooncake's conversations on 6 engines: other minutes for each of five seeds."""
    return RoutingScenario(
        name="mooncake",
        duration_s=600.0,
        warm_up_s=120.0,
        profile=ENGINE,
        replicas=6,
        workload=Trace(path=traces / MOONCAKE, format="mooncake", from_s=580.0 * (seed % 5)),
    )


def cases(traces: Path, seed: int = 0) -> dict[str, RoutingScenario]:
    listed = [
        *(shared(rps) for rps in (8.0, 16.0, 24.0)),
        mooncake(traces, seed),
        chats("chats", 6),
        no_prefix(14.0),
        chats("chats-restart", 6, Restart(at_s=180.0)),
        chats("chats-scale-up", 4, Scale(at_s=150.0, replicas=6)),
        chats(
            "chats-canary",
            6,
            Canary(at_s=100.0, weight=10, replicas=1),
            Canary(at_s=180.0, weight=50, replicas=3),
        ),
    ]
    return {scenario.name: scenario for scenario in listed}


Work = tuple[str, str, int]


def simulate(traces: Path, admission: str, work: Work) -> Summary:
    case, rule, seed = work
    scenario = cases(traces, seed)[case].model_copy(update={"admission": admission})
    return run(scenario, rule, seed)


COLUMNS = (
    "rule", "TTFT p50 s", "p90 s", "p99 s", "TPOT p90 ms", "tokens/s", "hits %", "imbalance", "lost",
    f"p90 / {BASELINE}",
)  # fmt: skip


ByRule = Mapping[str, Mapping[int, Summary]]
# Tables of --by-figure: title, figure and digits.
FIGURES: tuple[tuple[str, Callable[[Summary], float], int], ...] = (
    ("TTFT p50, s", lambda s: s.ttft_p50_s, 2),
    ("TTFT p90, s", lambda s: s.ttft_p90_s, 2),
    ("TTFT p99, s", lambda s: s.ttft_p99_s, 2),
    ("TPOT p90, ms", lambda s: 1000 * s.tpot_p90_s, 0),
    ("Tokens/s", lambda s: s.tokens_per_s, 0),
    ("Hits, %", lambda s: 100 * s.hit_rate, 0),
    ("Imbalance", lambda s: s.imbalance, 2),
)


def report_figure(
    name: str,
    figure: Callable[[Summary], float],
    digits: int,
    results: Mapping[str, ByRule],
) -> None:
    """Prints a table of one figure with a row for each rule and a column for each case."""
    print(f"\n| {name} | {' | '.join(results)} |\n|{' --- |' * (len(results) + 1)}")
    for rule in next(iter(results.values())):
        cells = [
            spread([figure(summary) for summary in by_rule[rule].values()], digits)
            for by_rule in results.values()
        ]
        print(f"| {rule} | {' | '.join(cells)} |")


def report(case: str, by_rule: ByRule) -> None:
    runs = [summary for of_rule in by_rule.values() for summary in of_rule.values()]
    reusable = 100 * fmean(summary.reusable_share for summary in runs)
    print(
        f"\n{case}: {runs[0].requests} requests in the first run, {reusable:.0f} % of tokens reusable"
    )
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    for rule, results in by_rule.items():
        print(f"| {rule} | " + " | ".join(row(results, by_rule.get(BASELINE, {}))) + " |")


def row(results: Mapping[int, Summary], baseline: Mapping[int, Summary]) -> list[str]:
    runs = list(results.values())
    both = sorted(results.keys() & baseline.keys())
    ratios = [results[s].ttft_p90_s / baseline[s].ttft_p90_s for s in both]
    return [
        spread([s.ttft_p50_s for s in runs], 2),
        spread([s.ttft_p90_s for s in runs], 2),
        spread([s.ttft_p99_s for s in runs], 2),
        spread([1000 * s.tpot_p90_s for s in runs], 0),
        spread([s.tokens_per_s for s in runs], 0),
        spread([100 * s.hit_rate for s in runs], 1),
        spread([s.imbalance for s in runs], 2),
        str(sum(s.lost for s in runs)),
        spread(ratios, 2) if ratios else "",
    ]


def report_errors(by_rule: ByRule) -> None:
    """Prints how wrong the predictions of the time to the first token were."""
    for rule, results in by_rule.items():
        p50 = [s.error_p50 for s in results.values() if s.error_p50 is not None]
        p95 = [s.error_p95 for s in results.values() if s.error_p95 is not None]
        if p50:
            print(
                f"\nError of the times that `{rule}` predicts: p50 {spread([100 * e for e in p50], 0)} %, "
                f"p95 {spread([100 * e for e in p95], 0)} %"
            )


def report_recoveries(
    by_rule: Mapping[str, Mapping[int, Summary]], events: Sequence[Event]
) -> None:
    """Prints the hits of conversations around each event, as a part of what could be hits."""
    for index, event in enumerate(events):
        print(f"\nAround {event.kind} at {event.at_s:g} s, % of the reusable tokens that are hits:")
        print("| rule | before | turn 1 | turn 2 | turn 3 | turn 4 | turns until 90 % |")
        print("|" + " --- |" * 7)
        for rule, results in by_rule.items():
            found = [s.recoveries[index] for s in results.values() if len(s.recoveries) > index]
            print(f"| {rule} | " + " | ".join(recovery_row([r for r in found if r])) + " |")


def recovery_row(found: Sequence[Recovery]) -> list[str]:
    if not found:
        return [""] * 6
    after = [[100 * r.after[turn] for r in found] for turn in range(4)]
    before = spread([100 * r.before for r in found], 0)
    return [
        before,
        *(spread(turn, 0) for turn in after),
        spread([r.turns for r in found], 2),
    ]


def spread(values: Sequence[float], digits: int) -> str:
    return Estimate.of(values).text(f"{{:.{digits}f}}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help="default: all")
    parser.add_argument("--rules", nargs="+", default=list(PICKERS), choices=list(PICKERS))
    parser.add_argument("--traces", type=Path, default=Path("traces"), help=f"folder of {MOONCAKE}")
    parser.add_argument("--admission", choices=("none", "fcfs", "deadline"), default="none")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--by-figure",
        action="store_true",
        help="one table for each figure, with a column for each case",
    )
    parser.add_argument("--json", type=Path, help="file of runs: what it has is not run again")
    options = parser.parse_args()
    known = cases(options.traces)
    wanted = options.cases or list(known)
    if unknown := [case for case in wanted if case not in known]:
        parser.error(f"no case {', '.join(unknown)}; there are: {', '.join(known)}")
    if "mooncake" in wanted and not (options.traces / MOONCAKE).exists():
        parser.error(f"mooncake needs {MOONCAKE} in the folder of --traces, or name other cases")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    done = finished(options.json) if options.json and options.json.exists() else {}
    results: dict[str, ByRule] = {}
    for case in wanted:
        work = [(case, r, s) for r in options.rules for s in seeds if (case, r, s) not in done]
        one = partial(simulate, options.traces, options.admission)
        new = (
            dict(zip(work, map_in_processes(one, work, options.jobs), strict=True)) if work else {}
        )
        done |= new
        if options.json:
            with options.json.open("a") as file:
                for key, summary in new.items():
                    print(json.dumps(record(key, summary)), file=file)
        by_rule = results[case] = {r: {s: done[case, r, s] for s in seeds} for r in options.rules}
        if not options.by_figure:
            report(case, by_rule)
            report_errors(by_rule)
            report_recoveries(by_rule, known[case].events)
    if options.by_figure:
        for name, figure, digits in FIGURES:
            report_figure(name, figure, digits, results)


def record(key: Work, summary: Summary) -> dict[str, Any]:
    case, rule, seed = key
    return {"case": case, "rule": rule, "seed": seed, **asdict(summary)}


def finished(path: Path) -> dict[Work, Summary]:
    """Runs of a file that `--json` wrote."""
    done: dict[Work, Summary] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        key = (row.pop("case"), row.pop("rule"), row.pop("seed"))
        recoveries = [
            r and Recovery(**{**r, "after": tuple(r["after"])}) for r in row.pop("recoveries")
        ]
        done[key] = Summary(**row, recoveries=tuple(recoveries))
    return done


if __name__ == "__main__":
    main()
