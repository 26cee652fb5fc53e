"""Least work of a closed loop, whose users send more the faster they are answered.

A user that is answered as late as the objectives allow sends the fewest requests. Missed requests, of which
the objective allows a few, are assumed to last MISSED_FACTOR times as long, after the longest wait at the
gateway.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import mean, pstdev

from benchmarks.simulator.panel.load import Load
from benchmarks.simulator.panel.requests import sample_of
from benchmarks.simulator.panel.work import least_work

from penstock.sim.workload.generate import Closed

MISSED_FACTOR = 3.0
# Standard deviations below the mean of counts and sums.
DEVIATIONS = 3.0


@dataclass(frozen=True, slots=True)
class Stage:
    """Work that every plan that attains does between two times, in engine seconds."""

    from_s: float
    to_s: float
    work_s: float


def stages_of(load: Load) -> list[Stage]:
    """Stages with a constant number of users."""
    workload = load.service.workload
    assert isinstance(workload, Closed)
    ends = [*workload.users, (load.scenario.duration_s, 0)]
    return [_stage(load, users, a, b) for (a, users), (b, _) in pairwise(ends)]


def _stage(load: Load, users: int, from_s: float, to_s: float) -> Stage:
    service, workload = load.service, load.service.workload
    assert isinstance(workload, Closed)
    requests = sample_of(load, from_s, to_s)
    longest = [service.ttft_s + service.tpot_s * (r.output_tokens - 1) for r in requests]
    missed_s = service.max_wait_s + MISSED_FACTOR * mean(longest)
    cycle_s = workload.think_s + mean(longest) + (1 - service.attainment) * missed_s
    deviation_s = sqrt(workload.think_s**2 + pstdev(longest) ** 2)
    # The cycles of a user that begin before the stage or end after it do not count.
    count = max(0.0, users * ((to_s - from_s) / cycle_s - 2))
    count = max(0.0, count - DEVIATIONS * deviation_s / cycle_s * sqrt(count))
    works = sorted(
        work.prefill_s + work.decode_s
        for work in least_work(service.engine, service.tpot_s, requests)
    )
    cheapest = works[: int(service.attainment * len(works))]
    each_s = sum(cheapest) / len(works)
    error = DEVIATIONS * pstdev(cheapest) / max(1e-9, each_s) / sqrt(max(1.0, count))
    return Stage(from_s, to_s, count * each_s * max(0.0, 1 - error))
