"""Lower bound on the GPU-hours of every plan that attains the objectives, the future known.

A linear program over the working replicas r of each time bin, with starts u:

    minimize   sum of r·bin + startup·u
    so that    the replica-seconds of every window >= the work due in it, less what is dropped
               u >= the rise of r;  r >= min_replicas;  at most the allowed share of requests is dropped

Work is due in a window if its request arrives after the window's start and has its deadline before its end
(the processor-demand criterion of Baruah, Rosier and Howell). Everything is relaxed towards less cost:

    work is a fluid that any replica takes up at any time, and `work.py` counts the least of it
    arrivals are moved to the start of their bin, deadlines to the end of theirs
    prompts and answers are dropped separately, those first that save most
    replicas may be fractions, and starts take STARTUP_SHARE of their median
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil, floor
from typing import Literal

from benchmarks.simulator.panel.closed_loop import stages_of
from benchmarks.simulator.panel.load import Load
from benchmarks.simulator.panel.requests import arrivals_of
from benchmarks.simulator.panel.work import least_work
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from penstock.sim.request import Request
from penstock.sim.workload.generate import Closed

BINS = 150
# Lengths of windows, and of the times that work may take, in bins; others are rounded.
LAGS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, BINS)
# Three standard deviations below the median of the start-up times, at a spread of 1.1.
STARTUP_SHARE = 1.1**-3


@dataclass(frozen=True, slots=True)
class Job:
    """Work with its window, in bins: it is done after `release` bins and before `deadline` bins."""

    part: Literal["prompt", "answer"]
    release: int
    deadline: int
    work_s: float


@dataclass(slots=True)
class Program:
    """Linear program under construction. Rows mean: sum of coefficients times columns <= limit."""

    costs: list[float] = field(default_factory=list)
    bounds: list[tuple[float, float | None]] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    _rows: list[int] = field(default_factory=list)
    _columns: list[int] = field(default_factory=list)
    _values: list[float] = field(default_factory=list)

    def column(self, cost: float = 0.0, least: float = 0.0, most: float | None = None) -> int:
        self.costs.append(cost)
        self.bounds.append((least, most))
        return len(self.costs) - 1

    def row(self, terms: Sequence[tuple[int, float]], limit: float) -> None:
        self._rows += [len(self.limits)] * len(terms)
        self._columns += [column for column, _ in terms]
        self._values += [value for _, value in terms]
        self.limits.append(limit)

    def least_cost(self) -> float:
        """Solve. Raises ValueError if there is no solution."""
        shape = (len(self.limits), len(self.costs))
        matrix = csr_matrix((self._values, (self._rows, self._columns)), shape=shape)
        found = linprog(
            self.costs, A_ub=matrix, b_ub=self.limits, bounds=self.bounds, method="highs"
        )
        if found.status != 0:
            raise ValueError(f"no lower bound: {found.message}")
        return float(found.fun)


def lower_bound_gpu_hours(load: Load) -> float:
    """Lower bound on the GPU-hours of a load, as `Summary.gpu_hours` counts them."""
    service, duration_s = load.service, load.scenario.duration_s
    bin_s = duration_s / BINS
    program = Program()
    replicas = [program.column(bin_s, float(service.min_replicas)) for _ in range(BINS)]
    _add_starts(program, replicas, load)
    if isinstance(service.workload, Closed):
        for stage in stages_of(load):
            window = range(floor(stage.from_s / bin_s), min(BINS, ceil(stage.to_s / bin_s)))
            program.row([(replicas[b], -bin_s) for b in window], -stage.work_s)
    else:
        requests = arrivals_of(load)
        most_dropped = (1 - service.attainment) * len(requests)
        _add_windows(program, replicas, bin_s, _jobs(load, requests, bin_s), most_dropped)
    return program.least_cost() * service.engine.gpus / 3600


def _add_starts(program: Program, replicas: Sequence[int], load: Load) -> None:
    startup_s = STARTUP_SHARE * load.service.engine.start_up.median_s
    initial = load.service.initial_replicas or load.service.min_replicas
    for index, column in enumerate(replicas):
        started = program.column(startup_s)
        if index == 0:
            program.row([(column, 1.0), (started, -1.0)], float(initial))
        else:
            program.row([(column, 1.0), (replicas[index - 1], -1.0), (started, -1.0)], 0.0)


def _jobs(load: Load, requests: Sequence[Request], bin_s: float) -> Iterator[Job]:
    """Two jobs for each request: its prompt, due within the TTFT, and its answer."""
    service = load.service
    works = least_work(service.engine, service.tpot_s, requests)
    for request, work in zip(requests, works, strict=True):
        first_s = request.arrival_s + service.ttft_s
        last_s = first_s + service.tpot_s * (request.output_tokens - 1)
        release = floor(request.arrival_s / bin_s)
        yield Job("prompt", release, _deadline(release, first_s / bin_s), work.prefill_s)
        yield Job("answer", release, _deadline(release, last_s / bin_s), work.decode_s)


def _deadline(release: int, deadline: float) -> int:
    """Deadline in bins, rounded up to one of LAGS after the release; beyond the last bin if there is none."""
    lag = ceil(deadline) - release
    return release + next((each for each in LAGS if each >= lag), BINS + 1)


def _add_windows(
    program: Program,
    replicas: Sequence[int],
    bin_s: float,
    jobs: Iterable[Job],
    most_dropped: float,
) -> None:
    """Add a row for each window in which more work is due than the minimum replicas do."""
    done = _cumulated(program, [[(column, bin_s)] for column in replicas])
    works: dict[tuple[str, int], list[list[float]]] = {}
    for job in jobs:
        if job.deadline <= BINS and job.work_s > 0:
            key: tuple[str, int] = job.part, job.deadline - job.release
            works.setdefault(key, [[] for _ in range(BINS)])[job.release].append(job.work_s)
    due = {key: [0.0, *accumulate(map(sum, of))] for key, of in works.items()}
    dropped: dict[tuple[str, int], list[int]] = {}
    droppable: dict[str, list[int]] = {}
    for (part, lag), of in works.items():
        terms = [_droppable(program, works_s) for works_s in of]
        droppable.setdefault(part, []).extend(column for term in terms for column, _ in term)
        dropped[part, lag] = _cumulated(program, terms)
    for columns in droppable.values():
        program.row([(column, 1.0) for column in columns], most_dropped)
    least = program.bounds[replicas[0]][0] * bin_s
    for begin, end in _windows():
        inside = [each for each in due if end - each[1] >= begin]
        work = sum(due[each][end - each[1] + 1] - due[each][begin] for each in inside)
        if work > least * (end - begin):
            row = [(done[end], -1.0), (done[begin], 1.0)]
            for each in inside:
                row += [(dropped[each][end - each[1] + 1], -1.0), (dropped[each][begin], 1.0)]
            program.row(row, -work)


def _windows() -> list[tuple[int, int]]:
    """Windows with a length of LAGS, and those up to the last bin."""
    return sorted({(b, min(BINS, b + length)) for b in range(BINS) for length in LAGS})


def _droppable(program: Program, works: Sequence[float]) -> list[tuple[int, float]]:
    """Columns for the number of dropped jobs, with the work of each: chunks of growing size, largest first.

    A chunk's work is that of its largest, so that no less is dropped than a plan could.
    """
    ordered, terms, at, size = sorted(works, reverse=True), [], 0, 1
    while at < len(ordered):
        chunk = ordered[at : at + size]
        terms.append((program.column(most=float(len(chunk))), chunk[0]))
        at, size = at + size, 2 * size
    return terms


def _cumulated(program: Program, terms: Sequence[Sequence[tuple[int, float]]]) -> list[int]:
    """Columns for the running sum of terms, from 0 on. They may be less, which only loosens a row."""
    columns = [program.column(most=0.0)]
    for each in terms:
        columns.append(program.column())
        program.row([(columns[-1], 1.0), (columns[-2], -1.0), *((c, -v) for c, v in each)], 0.0)
    return columns
