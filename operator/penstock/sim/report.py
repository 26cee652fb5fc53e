"""Summarizes a run per service, and combines runs over seeds and services."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import sqrt
from statistics import mean, stdev

from penstock.sim.fleet import Census
from penstock.sim.request import Request
from penstock.sim.run import Run
from penstock.sim.scaler import Record
from penstock.sim.service import Service

# A change of direction within this time counts as a reversal.
REVERSAL_S = 600.0
WORST_WINDOW_S = 300.0
# 97.5th percentile of Student's t by degrees of freedom from 1; above 20 that of the normal distribution.
STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of one service in one run. Latencies are in seconds, of requests that ended."""

    arrivals: int
    attainment: float  # share of all arrivals that met both objectives
    worst_attainment: float  # attainment of the worst five minutes, by arrival
    # mean_replicas, gpu_hours, cost: of pods from when they hold a GPU until they are removed, while load
    # arrives
    mean_replicas: float
    max_replicas: int
    gpu_hours: float
    cost: float
    shed: int
    failed: int
    unfinished: int
    reversals: int
    scale_ups: int
    scale_downs: int
    # Total length of the 10 s intervals with an arrival that missed an objective
    violation_s: float
    preemptions: int
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    tpot_p50_s: float
    tpot_p90_s: float
    tpot_p99_s: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """Mean over seeds, and half the width of its 95 % confidence interval."""

    mean: float
    ci95: float
    per_seed: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> "Estimate":
        all_values = tuple(values)
        n = len(all_values)
        if n < 2:
            return cls(mean(all_values), 0.0, all_values)
        student = STUDENT[n - 2] if n - 2 < len(STUDENT) else 1.96
        return cls(mean(all_values), student * stdev(all_values) / sqrt(n), all_values)

    def text(self, form: str) -> str:
        """The mean, with its confidence interval if there are several seeds. form: of each number."""
        mean_text = form.format(self.mean)
        return f"{mean_text} ± {form.format(self.ci95)}" if len(self.per_seed) > 1 else mean_text


def summarize(service: Service, duration_s: float) -> Summary:
    requests = service.gateway.requests
    objectives = service.spec.objectives
    met = [r.meets(objectives.ttft_s, objectives.tpot_s) for r in requests]
    census, engines = service.fleet.census, service.spec.engines
    gpu_hours = {
        variant: held_s(census, duration_s, variant) * engine.gpus / 3600
        for variant, engine in engines.items()
    }
    ttft = sorted(r.ttft_s for r in requests if r.ttft_s is not None)
    tpot = sorted(r.tpot_s for r in requests if r.outcome == "ended" and r.tpot_s is not None)
    moves = changes(service.scaler.records, duration_s)
    return Summary(
        arrivals=len(requests),
        attainment=sum(met) / len(met) if met else 1.0,
        worst_attainment=worst(requests, met),
        mean_replicas=held_s(census, duration_s) / duration_s,
        max_replicas=max(now.held for now in census),
        gpu_hours=sum(gpu_hours.values()),
        cost=sum(engines[variant].gpu_hour_price * hours for variant, hours in gpu_hours.items()),
        shed=sum(r.outcome == "shed" for r in requests),
        failed=sum(r.outcome == "failed" for r in requests),
        unfinished=sum(r.outcome == "open" for r in requests),
        reversals=reversals(moves),
        scale_ups=sum(by > 0 for _, by in moves),
        scale_downs=sum(by < 0 for _, by in moves),
        violation_s=10.0
        * len({r.arrival_s // 10 for r, m in zip(requests, met, strict=True) if not m}),
        preemptions=sum(
            p.engine.scheduler.stats().preemptions for p in service.fleet.pods.values()
        ),
        ttft_p50_s=quantile(ttft, 0.5),
        ttft_p90_s=quantile(ttft, 0.9),
        ttft_p99_s=quantile(ttft, 0.99),
        tpot_p50_s=quantile(tpot, 0.5),
        tpot_p90_s=quantile(tpot, 0.9),
        tpot_p99_s=quantile(tpot, 0.99),
    )


def combine(runs: Sequence[Sequence[Summary]]) -> dict[str, Estimate]:
    """Estimate each figure over seeds. runs: per seed, the summaries of one service or of all services."""
    totals = [together(summaries) for summaries in runs]
    return {name: Estimate.of(total[name] for total in totals) for name in totals[0]}


def together(summaries: Sequence[Summary]) -> dict[str, float]:
    """Combine services: sums of counts and costs, attainment of all requests, the worst latencies."""
    rows = [asdict(summary) for summary in summaries]
    arrivals = sum(row["arrivals"] for row in rows)
    total: dict[str, float] = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        if name == "attainment":
            met = sum(row["attainment"] * row["arrivals"] for row in rows)
            total[name] = met / arrivals if arrivals else 1.0
        elif name == "worst_attainment":
            total[name] = min(values)
        elif name.startswith(("ttft", "tpot")):
            total[name] = max(values)
        else:
            total[name] = sum(values)
    return total


def held_s(census: Sequence[Census], duration_s: float, variant: str | None = None) -> float:
    """Replica-seconds that held GPUs up to duration_s, of one variant or of all."""
    ends = [*census[1:], None]
    total = 0.0
    for now, after in zip(census, ends, strict=True):
        end_s = duration_s if after is None else min(duration_s, after.at_s)
        held = now.held if variant is None else now.by_variant[variant]
        total += held * max(0.0, end_s - now.at_s)
    return total


def changes(records: Sequence[Record], duration_s: float) -> list[tuple[float, int]]:
    """Changes of the desired replicas, as (time, difference)."""
    moves = [(r.at_s, r.decision.desired - r.before) for r in records if r.at_s <= duration_s]
    return [(at_s, by) for at_s, by in moves if by]


def reversals(moves: Sequence[tuple[float, int]]) -> int:
    return sum(
        (before > 0) != (after > 0) and at_s - earlier_s <= REVERSAL_S
        for (earlier_s, before), (at_s, after) in pairwise(moves)
    )


def worst(requests: Sequence[Request], met: Sequence[bool]) -> float:
    """Attainment of the worst five minutes among windows with at least a tenth of the mean load."""
    windows: dict[int, list[bool]] = {}
    for request, is_met in zip(requests, met, strict=True):
        windows.setdefault(int(request.arrival_s // WORST_WINDOW_S), []).append(is_met)
    if not windows:
        return 1.0
    least = len(requests) / len(windows) / 10
    return min(mean(window) for window in windows.values() if len(window) >= least)


def quantile(ordered: Sequence[float], q: float) -> float:
    """Quantile q of ordered values; 0 without values."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0.0


def summaries_of(run: Run) -> list[Summary]:
    return [summarize(service, run.scenario.duration_s) for service in run.services]
