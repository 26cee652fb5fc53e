"""Each rule at its best: its grid on the same arrivals, and the cheapest point that attains.

    python -m penstock.sim.tune llm-d-ramp keda-queue-guard kpa --seeds 3 --jobs 2

Rules are compared at equal attainment. After the grid, the first knob is bisected between the
cheapest point that attains and the next cheaper ones that do not, everything else equal.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context

from rich.console import Console
from rich.table import Table

from penstock.core.rules.registry import PUBLISHED, Knob, Knobs, Published
from penstock.sim import campaign, scenario
from penstock.sim.scenario import Scenario

TARGET, TOLERANCE = 0.99, 0.002
"""Attainment at which rules are compared, and how far below it still counts."""


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of one rule, over all seeds."""

    policy: str
    knobs: Mapping[str, Knob]
    attainment: float
    gpu_hours: float
    mean_replicas: float

    def attains(self, target: float) -> bool:
        return self.attainment >= target - TOLERANCE


@dataclass(frozen=True, slots=True)
class Tuner:
    """seeds: from 0 on, the same for all. rounds: of bisection after the grid."""

    world: Scenario
    seeds: int = 3
    jobs: int = 1
    target: float = TARGET
    rounds: int = 2

    def tune(self, policy: str) -> list[Point]:
        """All points that were tried."""
        published = PUBLISHED[policy]
        points = self.measured(policy, published.combinations())
        for _ in range(self.rounds):
            tried = [point.knobs for point in points]
            between = [k for k in self._between(published, points) if k not in tried]
            points += self.measured(policy, between)
        return points

    def measured(self, policy: str, settings: Iterable[Knobs]) -> list[Point]:
        todo = [(self.world, policy, knobs, self.seeds) for knobs in settings]
        if self.jobs == 1:
            return [_measure(*one) for one in todo]
        with ProcessPoolExecutor(self.jobs, mp_context=get_context("spawn")) as pool:
            return list(pool.map(_measure, *zip(*todo, strict=True))) if todo else []

    def _between(self, published: Published, points: Sequence[Point]) -> Iterator[Knobs]:
        """Half-way from the best towards its neighbours on the first knob that are too cheap."""
        best = cheapest(points, self.target)
        dial = next(iter(published.grid))
        if best is None or not isinstance(best.knobs[dial], float):
            return
        others = {name: value for name, value in best.knobs.items() if name != dial}
        here = float(best.knobs[dial])
        alike = [p for p in points if all(p.knobs[n] == v for n, v in others.items())]
        short = [float(p.knobs[dial]) for p in alike if not p.attains(self.target)]
        for side in ([v for v in short if v < here], [v for v in short if v > here]):
            if side:
                near = min(side, key=lambda v: abs(v - here))
                knobs: Knobs = {**best.knobs, dial: (near + here) / 2}
                if published.makes_sense(knobs):
                    yield knobs


def cheapest(points: Sequence[Point], target: float) -> Point | None:
    """With the fewest GPU-hours of those that attain."""
    return min((p for p in points if p.attains(target)), key=lambda p: p.gpu_hours, default=None)


def frontier(points: Sequence[Point]) -> list[Point]:
    """Those that nobody beats in both; cheapest first."""
    best: list[Point] = []
    for point in sorted(points, key=lambda p: (p.gpu_hours, -p.attainment)):
        if not best or point.attainment > best[-1].attainment:
            best.append(point)
    return best


def _measure(world: Scenario, policy: str, knobs: Knobs, seeds: int) -> Point:
    texts = {name: str(value).lower() for name, value in knobs.items()}
    total = campaign.hold(world, policy, texts, seeds).total
    return Point(
        policy,
        knobs,
        total["attainment"].mean,
        total["gpu_hours"].mean,
        total["mean_replicas"].mean,
    )


def table_of(title: str, points: Sequence[Point]) -> Table:
    table = Table("rule", "attainment", "replicas", "GPU-hours", "knobs", title=title)
    for p in points:
        knobs = " ".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                         for name, value in p.knobs.items())  # fmt: skip
        row = (f"{p.attainment:.2%}", f"{p.mean_replicas:.2f}", f"{p.gpu_hours:.2f}")
        table.add_row(p.policy, *row, knobs)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m penstock.sim.tune", description=__doc__)
    parser.add_argument("scenario", help="a shipped name, or a file")
    parser.add_argument("rules", nargs="*", default=list(PUBLISHED), help="all by default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--target", type=float, default=TARGET, help="attainment")
    parser.add_argument("--rounds", type=int, default=2, help="of bisection")
    parser.add_argument("--admission", choices=("none", "fcfs", "deadline"))
    parser.add_argument("--json", dest="json_path", help="all points, as JSON lines")
    options = parser.parse_args()
    if unknown := set(options.rules) - set(PUBLISHED):
        parser.error(f"no rule {', '.join(sorted(unknown))}; there are {', '.join(PUBLISHED)}")
    world = scenario.load(options.scenario).with_each(admission=options.admission)
    tuner = Tuner(world, options.seeds, options.jobs, options.target, options.rounds)
    console, winners = Console(file=sys.stdout), []
    for policy in options.rules:
        points = tuner.tune(policy)
        if options.json_path:
            with open(options.json_path, "a", encoding="utf-8") as lines:
                lines.writelines(json.dumps(asdict(p)) + "\n" for p in points)
        console.print(table_of(f"{world.name}: {policy}", frontier(points)))
        best = cheapest(points, options.target)
        winners += [best] if best else []
    winners.sort(key=lambda p: p.gpu_hours)
    console.print(table_of(f"{world.name}: at {options.target:.1%}", winners))


if __name__ == "__main__":
    main()
