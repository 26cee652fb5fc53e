"""Measures scaling rules on loads, with the best fixed number and the lower bound of each load."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

from benchmarks.simulator.panel.best_fixed import best_fixed
from benchmarks.simulator.panel.load import Load, draw_load
from benchmarks.simulator.panel.lower_bound import lower_bound_gpu_hours
from benchmarks.simulator.panel.no_speculation import plans_of
from benchmarks.simulator.run_cache import Figures, Result, cached, figures, key_of

from penstock.sim.report import summaries_of
from penstock.sim.run import Run

FIXED, BOUND, NO_SPECULATION = "best-fixed", "lower-bound", "no-speculation"
FIGURES = ("attainment", "gpu_hours", "mean_replicas", "max_replicas", "reversals", "arrivals")
# Modules that the lower bound of a load depends on, besides the load.
BOUND_SOURCES = tuple(
    Path(__file__).with_name(f"{name}.py")
    for name in ("lower_bound", "work", "closed_loop", "requests")
)
PLAN_SOURCES = tuple(
    Path(__file__).with_name(f"{name}.py") for name in ("no_speculation", "replica")
)


@dataclass(frozen=True, slots=True)
class Job:
    """Something to compute for the load of a seed.

    what: FIXED, BOUND, NO_SPECULATION, or a rule as NAME:KNOB=VALUE,…
    """

    seed: int
    what: str

    def result(self, folder: Path) -> Result:
        load = draw_load(self.seed)
        if self.what == FIXED:
            return cached(folder, self._key(load), lambda: _fixed(load))
        if self.what == BOUND:
            key = self._key(load, *BOUND_SOURCES)
            return cached(folder, key, lambda: {"gpu_hours": lower_bound_gpu_hours(load)})
        if self.what == NO_SPECULATION:
            return cached(folder, self._key(load, *PLAN_SOURCES), lambda: _plans(load))
        rule, knobs = parse_rule(self.what)
        return figures(folder, load.scenario, rule, knobs, load.seed, _figures_of)

    def _key(self, load: Load, *sources: Path) -> str:
        return key_of(load.scenario, load.seed, self.what, {}, *sources)


def parse_rule(text: str) -> tuple[str, dict[str, str]]:
    """The name and the knobs of a rule. text: NAME or NAME:KNOB=VALUE,…"""
    rule, _, given = text.partition(":")
    return rule, dict(each.split("=", 1) for each in given.split(",") if each)


def results_of(
    seeds: Sequence[int], wanted: Iterable[str], folder: Path, processes: int
) -> Iterator[tuple[Job, Result]]:
    """Yield the results of all runs, in parallel processes, the largest loads first.

    wanted: as in `Job.what`.
    """
    sizes = {seed: _size(draw_load(seed)) for seed in seeds}
    jobs = [Job(seed, what) for what in wanted for seed in seeds]
    jobs.sort(key=lambda job: -sizes[job.seed])
    spawn = get_context("spawn")
    with ProcessPoolExecutor(processes, spawn) as pool:
        running = {pool.submit(job.result, folder): job for job in jobs}
        for done in as_completed(running):
            yield running[done], done.result()


def _size(load: Load) -> float:
    """Engine seconds of a load, about in proportion to its simulation time."""
    return load.replicas * load.scenario.duration_s


def _fixed(load: Load) -> Result:
    found = best_fixed(load)
    return {} if found is None else asdict(found)


def _plans(load: Load) -> Result:
    """Each plan as if it were a rule, and its bound with the GPU-hours of the plan."""
    results = {}
    for factor, plan in plans_of(load).items():
        for name, attainment in (("plan", plan.attainment), ("bound", plan.bound)):
            figures = {"attainment": attainment, "gpu_hours": plan.gpu_hours}
            results[f"{name} x{factor:g}"] = figures
    return results


def _figures_of(done: Run) -> Figures:
    summary = asdict(summaries_of(done)[0])
    return {name: summary[name] for name in FIGURES}
