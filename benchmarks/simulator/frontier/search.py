"""Finds the best settings of each rule, and their cost.

The first knob of a rule is its dial: it trades cost against attainment. A sweep fixes all other knobs and
varies the dial. The two neighboring settings between which attainment crosses the target are the bracket;
between them cost and attainment are interpolated linearly.

    1. each rule's sweep at its published settings, with one seed
    2. all sweeps of the best rules, with one seed; then the best sweeps of the best rules with two seeds
    3. each rule's best sweep on the report part, with two seeds; those of the best rules with all seeds
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from benchmarks.simulator.frontier.case import Case
from benchmarks.simulator.frontier.grids import GRIDS, Grid
from benchmarks.simulator.frontier.scenarios import NamedScenario, Part

from penstock.core.admission.admission_spec import Policy
from penstock.sim import policies
from penstock.sim.baselines.registry import Knob, Knobs
from penstock.sim.report import Estimate

# Rules besides ours and the oracle that have all their sweeps tried and are reported with all seeds.
FINALISTS = 3
SWEEPS_AGAIN, SEEDS_AGAIN = 2, 2
SEEDS_OF_OTHERS = 2
ROUNDS = 2  # halvings of a bracket
# Attainment above the target at which the upper end of a bracket is close enough.
CLOSE = 0.002
OURS = "penstock"


@dataclass(frozen=True, slots=True)
class Point:
    """Results of one setting over seeds."""

    knobs: Knobs
    attainments: tuple[float, ...]
    gpu_hours: tuple[float, ...]
    mean_replicas: float
    reversals: float

    @property
    def attainment(self) -> float:
        return mean(self.attainments)

    @property
    def cost(self) -> float:
        return mean(self.gpu_hours)


@dataclass(frozen=True, slots=True)
class Crossing:
    """Bracket of the target: the best setting below it and the cheapest one that attains it."""

    short: Point
    enough: Point
    target: float

    @property
    def costs(self) -> tuple[float, ...]:
        """GPU-hours at the target, by seed.

        A seed's attainment above or below the mean is priced at the slope of the bracket.
        """
        slope = (self.enough.cost - self.short.cost) / self._width
        share = (self.target - self.short.attainment) / self._width
        pairs = zip(
            zip(self.short.gpu_hours, self.enough.gpu_hours, strict=True),
            zip(self.short.attainments, self.enough.attainments, strict=True),
            strict=True,
        )
        return tuple(
            _between(hours, share) - slope * (_between(attained, share) - self.target)
            for hours, attained in pairs
        )

    @property
    def cost(self) -> float:
        return mean(self.costs)

    @property
    def _width(self) -> float:
        return max(1e-9, self.enough.attainment - self.short.attainment)


def _between(ends: tuple[float, float], share: float) -> float:
    return ends[0] + share * (ends[1] - ends[0])


@dataclass(frozen=True, slots=True)
class Result:
    """A rule on the report part. points: all measured settings.

    crossing: None if no setting of the dial attains the target, or all do.
    """

    policy: str
    admission: Policy
    points: tuple[Point, ...]
    crossing: Crossing | None
    target: float

    @property
    def costs(self) -> tuple[float, ...] | None:
        if self.crossing is not None:
            return self.crossing.costs
        able = [p for p in self.points if p.attainment >= self.target]
        return min(able, key=lambda p: p.cost).gpu_hours if able else None

    def saving(self, other: "Result") -> Estimate | None:
        """Fraction of the other rule's GPU-hours that this rule saves, paired by seed."""
        mine, others = self.costs, other.costs
        if mine is None or others is None:
            return None
        pairs = list(zip(mine, others, strict=False))
        whole = mean(b for _, b in pairs)
        return Estimate.of((b - a) / whole for a, b in pairs)


class Sweep:
    """Settings of the dial with all other knobs fixed; measured on demand. knobs: all but the dial."""

    def __init__(self, grid: Grid, knobs: Knobs, target: float) -> None:
        self.knobs = knobs
        self._dial, values = next(iter(grid.values.items()))
        self.values = [v for v in values if grid.makes_sense({self._dial: v, **knobs})]
        self._target = target

    def points(self, cache: Path, case: Case, seeds: range) -> list[Point]:
        """Measure settings by bisection, cheapest first. A higher dial costs less and attains less."""
        points: list[Point] = []
        low, high = 0, len(self.values)  # the first setting that does not attain is among these
        while low < high:
            middle = (low + high) // 2
            points.append(self.point(cache, case, self.values[middle], seeds))
            if points[-1].attainment >= self._target:
                low = middle + 1
            else:
                high = middle
        return sorted(points, key=lambda point: point.cost)

    def point(self, cache: Path, case: Case, value: Knob, seeds: range) -> Point:
        knobs = {self._dial: value, **self.knobs}
        runs = case.runs(cache, knobs, seeds)
        return Point(
            knobs,
            tuple(run["attainment"] for run in runs),
            tuple(run["gpu_hours"] for run in runs),
            mean(run["mean_replicas"] for run in runs),
            mean(run["reversals"] for run in runs),
        )

    def refine(
        self, cache: Path, case: Case, points: list[Point], seeds: range, rounds: int
    ) -> list[Point]:
        """Add settings between the ends of the bracket, if the dial is continuous."""
        for _ in range(rounds):
            found = crossing(points, self._target)
            if found is None:
                break
            ends = [point.knobs[self._dial] for point in (found.short, found.enough)]
            middle = _middle(*ends)
            if middle is None or found.enough.attainment - self._target < CLOSE / 2:
                break
            points = [*points, self.point(cache, case, middle, seeds)]
        return sorted(points, key=lambda point: point.cost)


def _middle(one: Knob, other: Knob) -> Knob | None:
    if isinstance(one, float) and isinstance(other, float):
        return (one + other) / 2
    return None


def crossing(points: Sequence[Point], target: float) -> Crossing | None:
    """Bracket of the target: the cheapest attaining point, and the best of the cheaper points."""
    ordered = sorted(points, key=lambda point: point.cost)
    index = next((i for i, p in enumerate(ordered) if p.attainment >= target), 0)
    if not index:
        return None
    short = max(ordered[:index], key=lambda point: point.attainment)
    return Crossing(short, ordered[index], target)


def price(points: Sequence[Point], target: float) -> float:
    """GPU-hours at the target; infinite if no point attains it."""
    found = crossing(points, target)
    if found is not None:
        return found.cost
    return min((p.cost for p in points if p.attainment >= target), default=float("inf"))


@dataclass(frozen=True, slots=True)
class Entrant:
    """A rule on the tuning part: its sweeps, cheapest first. price: GPU-hours of the cheapest."""

    policy: str
    admission: Policy
    sweeps: tuple[Sweep, ...]
    price: float


@dataclass(frozen=True, slots=True)
class FrontierSearch:
    """Search over rules in one scenario. target: attainment. seeds: number of seeds in the report."""

    cache: Path
    named: NamedScenario
    target: float
    seeds: int

    def results(self, names: Sequence[str], admissions: Sequence[Policy]) -> Iterator[Result]:
        """Tune on one part and measure on the other; rules with the cheapest tuning come first."""
        entrants = [self._entrant(name, admission) for admission in admissions for name in names]
        for sweeps, seeds in ((None, 1), (SWEEPS_AGAIN, SEEDS_AGAIN)):
            best = _best(entrants)
            entrants = [self._again(e, sweeps, seeds) if e in best else e for e in entrants]
        best = _best(entrants)
        for entrant in sorted(entrants, key=lambda entrant: entrant.price):
            yield self.result(entrant, is_best=entrant in best)

    def _entrant(self, policy: str, admission: Policy) -> Entrant:
        """Measure the sweep at the published settings with one seed."""
        sweeps = list(_sweeps(policy, self.target))
        first = self._ranked(policy, admission, sweeps[:1], range(1))
        return replace(first, sweeps=tuple(sweeps))

    def result(self, entrant: Entrant, *, is_best: bool) -> Result:
        policy, admission, sweep = entrant.policy, entrant.admission, entrant.sweeps[0]
        seeds = range(self.seeds if is_best else min(self.seeds, SEEDS_OF_OTHERS))
        case = self._case(policy, admission, "report")
        points = sweep.points(self.cache, case, seeds)
        if is_best:
            points = sweep.refine(self.cache, case, points, seeds, ROUNDS)
        return Result(policy, admission, tuple(points), crossing(points, self.target), self.target)

    def _again(self, entrant: Entrant, kept: int | None, seeds: int) -> Entrant:
        """Measure the best `kept` sweeps again, with `seeds` seeds."""
        if len(entrant.sweeps) == 1:
            return entrant
        sweeps = entrant.sweeps[:kept]
        return self._ranked(entrant.policy, entrant.admission, sweeps, range(seeds))

    def _ranked(
        self, policy: str, admission: Policy, sweeps: Sequence[Sweep], seeds: range
    ) -> Entrant:
        case = self._case(policy, admission, "tuning")
        priced = [
            (price(sweep.points(self.cache, case, seeds), self.target), sweep) for sweep in sweeps
        ]
        priced.sort(key=lambda pair: pair[0])
        return Entrant(policy, admission, tuple(sweep for _, sweep in priced), priced[0][0])

    def _case(self, policy: str, admission: Policy, part: Part) -> Case:
        return Case(self.named, part, admission, policy)


def _best(entrants: Sequence[Entrant]) -> list[Entrant]:
    """Penstock's rule, the oracle, and the finalists among the others."""
    always = [e for e in entrants if e.policy in (OURS, "oracle")]
    others = sorted((e for e in entrants if e not in always), key=lambda entrant: entrant.price)
    return [*always, *others[:FINALISTS]]


def _sweeps(policy: str, target: float) -> Iterator[Sweep]:
    """Sweeps of a rule, those nearest to its published settings first."""
    grid, defaults = GRIDS[policy], policies.defaults_of(policy)
    dial = next(iter(grid.values))
    seen: list[Knobs] = []
    for knobs in grid.combinations():
        others = {name: value for name, value in knobs.items() if name != dial}
        if others not in seen:
            seen.append(others)
    seen.sort(key=lambda knobs: sum(defaults.get(name) != value for name, value in knobs.items()))
    return (Sweep(grid, knobs, target) for knobs in seen)
