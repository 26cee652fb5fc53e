"""Runs one rule in one scenario for given knobs and seeds."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.simulator.frontier.scenarios import NamedScenario, Part
from benchmarks.simulator.run_cache import Figures, figures

from penstock.core.admission.admission_spec import Policy
from penstock.sim.baselines.registry import Knobs
from penstock.sim.report import summaries_of, together
from penstock.sim.run import Run

FIGURES = ("attainment", "gpu_hours", "mean_replicas", "shed", "failed", "reversals", "arrivals")


@dataclass(frozen=True, slots=True)
class Case:
    """A rule in a scenario, on the tuning or the report part."""

    named: NamedScenario
    part: Part
    admission: Policy
    policy: str

    def runs(self, cache: Path, knobs: Knobs, seeds: Iterable[int]) -> list[Figures]:
        """Figures for each seed, in order. cache: folder of finished runs."""
        drawn = [self.named.run_of(self.part, self.admission, seed) for seed in seeds]
        return [
            figures(cache, scenario, self.policy, knobs, seed, figures_of)
            for scenario, seed in drawn
        ]


def figures_of(done: Run) -> Figures:
    """Reduce a run to FIGURES, over all its services."""
    total = together(summaries_of(done))
    return {name: total[name] for name in FIGURES}
