"""Measures error rates and decision times of canary judges (benchmarks/results/canary.md).

    python -m benchmarks.simulator.canary_judges healthy [--latency queue] [--runs 400] [--jobs 2] [--seed 0]
    python -m benchmarks.simulator.canary_judges worse
    python -m benchmarks.simulator.canary_judges judges
    python -m benchmarks.simulator.canary_judges bars      exits with 1 if a bar is missed

Each row of a table equals `penstock simulate-rollout` with the same options. Shares have exact 95 %
intervals; times are medians with 95 % intervals.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from benchmarks.options import option_parser

from penstock.sim.rollout.campaign import Trial, simulate, summary
from penstock.sim.rollout.interval import of_share
from penstock.sim.rollout.judges import JudgeName
from penstock.sim.rollout.scenario import Effect, Latency, Scenario

RATES = (0.2, 0.5, 1.0, 5.0, 20.0)
BESIDE = Scenario(canary_rate=0.5, control_rate=4.5)
WORSE = {
    "+20 % TTFT": replace(BESIDE, effect=Effect(ttft=1.2)),
    "+50 % TTFT": replace(BESIDE, effect=Effect(ttft=1.5)),
    "+10 % TPOT": replace(BESIDE, effect=Effect(tpot=1.1)),
    "+2 points of errors": replace(BESIDE, effect=Effect(errors=0.02)),
    "+2 points of errors, no history": replace(
        BESIDE, effect=Effect(errors=0.02), history_hours=0.0
    ),
    "+20 % TTFT beside control pods at 0.5 rps": replace(
        BESIDE, control_rate=0.5, effect=Effect(ttft=1.2)
    ),
    "+20 % TTFT, length explains half": replace(BESIDE, length_share=0.5, effect=Effect(ttft=1.2)),
    "+20 % TTFT, heavy tails": replace(BESIDE, latency="heavy", effect=Effect(ttft=1.2)),
    "+20 % TTFT, 300 s of warm-up": replace(BESIDE, warm_up_s=300.0, effect=Effect(ttft=1.2)),
    "prefill a fifth slower, in queues 60 % busy": replace(
        BESIDE, latency="queue", utilization=0.6, effect=Effect(service=1.2)
    ),
    "+50 % TTFT in queues": replace(BESIDE, latency="queue", effect=Effect(ttft=1.5)),
}
# Bar: largest median in minutes. At least 98 % must be detected within the hour.
BARS_MINUTES = {
    "+20 % TTFT": 10.0,
    "+50 % TTFT": 3.0,
    "+10 % TPOT": 12.0,
    "+2 points of errors": 6.0,
    "+20 % TTFT beside control pods at 0.5 rps": 18.0,
}


class Campaign:
    """Runs the rows of a table, prints each one and keeps all."""

    def __init__(self, runs: int, jobs: int, seed: int, latencies: tuple[Latency, ...]) -> None:
        self.runs, self.jobs, self.seed, self.latencies = runs, jobs, seed, latencies
        self.rows: dict[str, dict[str, Any]] = {}

    def row(self, label: str, scenario: Scenario, judge: JudgeName = "penstock") -> list[Trial]:
        lives = simulate(judge, scenario, self.runs, self.seed, self.jobs)
        told = summary(lives)
        self.rows[label] = told
        print(
            f"| {label} | {share(told, 'aborted')} | {share(told, 'promoted')} "
            f"| {minutes(told)} | {told['exposed_requests']:,.0f} |",
            flush=True,
        )
        return lives


def header(title: str, campaign: Campaign) -> None:
    drawn = f"{campaign.runs} hours each, seed {campaign.seed}"
    print(f"\n| {title} ({drawn}) | aborted | promoted | median minutes | requests |")
    print("| --- | --- | --- | --- | --- |")


def share(told: dict[str, Any], outcome: str) -> str:
    low, high = told[f"{outcome}_interval"]
    return f"{told[outcome]:.1%} ({low:.1%} to {high:.1%})"


def minutes(told: dict[str, Any]) -> str:
    if told["median_minutes"] is None:
        return "none decided"
    low, high = told["median_minutes_interval"]
    return f"{told['median_minutes']:.1f} ({low:.1f} to {high:.1f}), {told['minutes_of']}"


def healthy(campaign: Campaign) -> list[str]:
    """Simulate canaries equal to stable. Returns the missed bars."""
    missed = []
    rows: list[tuple[Latency, float]]
    rows = [("lognormal", 0.3), ("heavy", 0.3), ("queue", 0.3), ("queue", 0.6)]
    for latency, utilization in rows:
        if latency not in campaign.latencies:
            continue
        kind = f"{latency}, {utilization:.0%} busy" if latency == "queue" else latency
        header(f"healthy, {kind}", campaign)
        everything: list[Trial] = []
        for rate in RATES:
            scenario = Scenario(
                canary_rate=rate,
                control_rate=9 * rate,
                latency=latency,
                utilization=utilization,
            )
            label = f"{kind}, {rate:g} rps"
            everything += campaign.row(label, scenario)
            if rate >= 1 and campaign.rows[label]["promoted"] < 0.95:
                missed.append(f"{label}: promoted {share(campaign.rows[label], 'promoted')}")
        if latency == "queue":
            everything += grown(campaign, kind, utilization, missed)
        aborted = sum(life.decided.outcome == "aborted" for life in everything)
        low, high = of_share(aborted, len(everything))
        print(f"\n{kind}: {aborted} of {len(everything)} aborted ({low:.2%} to {high:.2%})")
        if aborted / len(everything) > 0.01:
            missed.append(f"{kind}: {aborted} of {len(everything)} healthy canaries aborted")
    return missed


def grown(campaign: Campaign, kind: str, utilization: float, missed: list[str]) -> list[Trial]:
    """Simulate with control pods and with traffic that grows with the evidence, as the operator does."""
    lives: list[Trial] = []
    for rate in RATES:
        scenario = Scenario(
            canary_rate=rate,
            control_rate=rate,
            latency="queue",
            utilization=utilization,
            grows=True,
        )
        label = f"{kind}, {rate:g} rps at the start"
        lives += campaign.row(label, scenario)
        told = campaign.rows[label]
        if rate >= 1 and told["promoted"] < 0.95:
            missed.append(f"{label}: promoted {share(told, 'promoted')}")
        if told["aborted"] > 0.01:
            missed.append(f"{label}: aborted {share(told, 'aborted')}")
    return lives


def worse(campaign: Campaign) -> list[str]:
    """Simulate canaries worse than stable. Returns the missed bars."""
    header("worse", campaign)
    missed = []
    for label, scenario in WORSE.items():
        campaign.row(label, scenario)
        told = campaign.rows[label]
        if label in BARS_MINUTES and not (
            told["aborted"] >= 0.98 and told["median_minutes"] <= BARS_MINUTES[label]
        ):
            missed.append(f"{label}: {share(told, 'aborted')}, {minutes(told)}")
    plain = campaign.rows["+20 % TTFT"]["median_minutes"]
    adjusted = campaign.rows["+20 % TTFT, length explains half"]["median_minutes"]
    gain = 1 - adjusted / plain
    print(f"\nadjusting for prompt length saves {gain:.0%} of the time")
    if gain < 0.3:
        missed.append(f"adjusting for prompt length saves {gain:.0%}")
    return missed


def judges(campaign: Campaign) -> list[str]:
    """Compare all judges on the same draws."""
    cases = {
        "healthy": BESIDE,
        **{label: WORSE[label] for label in ("+20 % TTFT", "+50 % TTFT", "+2 points of errors")},
    }
    for label, scenario in cases.items():
        header(label, campaign)
        for judge in get_args(JudgeName):
            campaign.row(judge, scenario, judge)
    return []


def main() -> int:
    parser = option_parser(__doc__, runs=400, jobs=1, seed=0)
    parser.add_argument("part", choices=("healthy", "worse", "judges", "bars"))
    parser.add_argument("--latency", choices=get_args(Latency), help="of healthy ones; else all")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    latencies = (asked.latency,) if asked.latency else get_args(Latency)
    campaign = Campaign(asked.runs, asked.jobs, asked.seed, latencies)
    parts = {"healthy": [healthy], "worse": [worse], "judges": [judges], "bars": [healthy, worse]}
    missed = [line for part in parts[asked.part] for line in part(campaign)]
    for line in missed:
        print(f"missed: {line}")
    if asked.json:
        asked.json.write_text(json.dumps(campaign.rows, indent=2))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
