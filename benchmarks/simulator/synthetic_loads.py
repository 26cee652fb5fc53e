"""Compares scaling rules on synthetic loads that differ from the traces.

    python -m benchmarks.simulator.synthetic_loads --seeds 2
    python -m benchmarks.simulator.synthetic_loads bursts answers --rules penstock:loss=1 static:replicas=6

For each load and rule it prints attainment, GPU-hours with start-up, and reversals over seeds. Each run is
two hours, and pods start in 110 s. The shapes are synthetic, so the figures compare rules and are no cost
estimate. `bursts` has about the published gaps, idle seconds and lengths of Azure's code completions.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, pi, sin
from pathlib import Path
from random import Random
from statistics import mean
from tempfile import TemporaryDirectory

from benchmarks.options import option_parser
from benchmarks.simulator.frontier.scenarios import FIRST_SHARE, replicas_needed
from benchmarks.simulator.panel.measure import parse_rule
from rich.console import Console
from rich.table import Table

from penstock.sim.report import summaries_of, together
from penstock.sim.run import run
from penstock.sim.scenario import Scenario, Service
from penstock.sim.traces.source import Trace

HOURS_S = 7200.0
RULES = ("penstock", "dynamo-throughput:objective_share=0.2", "static:replicas=4", "oracle")
# (arrival s, prompt tokens, output tokens)
Arrivals = Iterator[tuple[float, int, int]]


@dataclass(frozen=True, slots=True)
class Load:
    arrivals: Callable[[Random], Arrivals]
    profile: str
    ttft_s: float
    tpot_s: float


def length(random: Random, median: float, sigma: float, most: int) -> int:
    return max(1, min(most, round(median * 2.718281828 ** random.gauss(0, sigma))))


def thinned(random: Random, rate: Callable[[float], float], most: float) -> Iterator[float]:
    at_s = random.expovariate(most)
    while at_s < HOURS_S:
        if random.random() < rate(at_s) / most:
            yield at_s
        at_s += random.expovariate(most)


def bursts(random: Random) -> Arrivals:
    """Bursts from 1 to hundreds of requests within seconds, with about 30 s of silence between."""
    at_s = 0.0
    while at_s < HOURS_S:
        at_s += random.expovariate(1 / 25)
        count, lasts_s = length(random, 37, 1.2, 600), random.uniform(3, 15)
        for came_s in sorted(at_s + lasts_s * random.random() for _ in range(count)):
            yield came_s, length(random, 1469, 0.9, 7900), length(random, 13, 1.1, 500)
        at_s += lasts_s


def answers(random: Random) -> Arrivals:
    """Long answers of widely varying length, at 1.4 to 5 requests/s and back."""
    rate = lambda at_s: 3.2 * (1 + 0.55 * sin(2 * pi * at_s / HOURS_S - pi / 2))  # noqa: E731
    for at_s in thinned(random, rate, 5.0):
        yield at_s, length(random, 500, 1.0, 20_000), length(random, 1500, 0.9, 12_000)


def crowds(random: Random) -> Arrivals:
    """Crowds: every 15 minutes 1.5 to 4 times the load, for one to seven minutes."""
    spans, at_s = [], 0.0
    while at_s < HOURS_S:
        at_s += random.expovariate(1 / 900)
        spans.append((at_s, at_s + random.uniform(60, 400), random.uniform(1.5, 4)))

    def rate(at_s: float) -> float:
        return 12 * max([1.0, *(times for begin, end, times in spans if begin <= at_s < end)])

    for came_s in thinned(random, rate, 48.0):
        yield came_s, length(random, 800, 1.0, 8000), length(random, 200, 0.8, 2000)


def stairs(random: Random) -> Arrivals:
    """Stairs: eight stages of 15 minutes, between 4 and 48 requests/s."""
    steps = (6, 14, 30, 48, 20, 40, 10, 4)
    for at_s in thinned(random, lambda at_s: steps[int(8 * at_s / HOURS_S)], 48.0):
        yield at_s, length(random, 900, 1.0, 8000), length(random, 180, 0.9, 2000)


LOADS = {
    "bursts": Load(bursts, "llama-3.1-8b-a100", 3.0, 0.1),
    "answers": Load(answers, "llama-3.1-8b-a100", 2.0, 0.06),
    "crowds": Load(crowds, "llama-3.1-8b-a100", 2.0, 0.1),
    "stairs": Load(stairs, "llama-3.1-8b-a100", 2.0, 0.1),
}


def written(load: Load, seed: int, path: Path) -> None:
    """Write a load as a trace in Azure's format."""
    began = datetime(2023, 11, 16, tzinfo=UTC)
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for at_s, prompt, output in sorted(load.arrivals(Random(seed))):
        at = began + timedelta(seconds=at_s)
        lines.append(f"{at:%Y-%m-%d %H:%M:%S.%f}0,{prompt},{output}")
    path.write_text("\n".join(lines) + "\n")


def measured(job: tuple[str, str, int]) -> tuple[float, float, float]:
    name, rule, seed = job
    load = LOADS[name]
    policy, knobs = parse_rule(rule)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "load.csv"
        written(load, seed, path)
        service = Service(
            profile=load.profile,
            workload=Trace(path=path, format="azure"),
            ttft_s=load.ttft_s,
            tpot_s=load.tpot_s,
            startup_s=110.0,
            max_replicas=32,
        )
        first = max(1, ceil(FIRST_SHARE * replicas_needed(service, seed)))
        service = service.model_copy(update={"initial_replicas": first})
        scenario = Scenario(name=name, duration_s=HOURS_S, services=(service,))
        total = together(summaries_of(run(scenario, policy, seed, knobs)))
    return total["attainment"], total["gpu_hours"], total["reversals"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = option_parser(__doc__, seeds=2, jobs=2)
    parser.add_argument("loads", nargs="*", help=f"of {', '.join(LOADS)}; all by default")
    parser.add_argument("--rules", nargs="+", default=RULES, help="NAME or NAME:KNOB=VALUE,...")
    options = parser.parse_args(arguments)
    console = Console(width=110)
    with ProcessPoolExecutor(options.jobs) as pool:
        for name in options.loads or LOADS:
            table = Table("rule", "attainment", "GPU-hours", "reversals", title=name)
            jobs = [(name, rule, seed) for rule in options.rules for seed in range(options.seeds)]
            figures = iter(list(pool.map(measured, jobs)))
            for rule in options.rules:
                rows = [next(figures) for _ in range(options.seeds)]
                attained, hours, reversals = (mean(column) for column in zip(*rows, strict=True))
                table.add_row(rule, f"{attained:.2%}", f"{hours:.2f}", f"{reversals:.1f}")
            console.print(table)


if __name__ == "__main__":
    main()
