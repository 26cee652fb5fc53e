"""A rule in a world: what is run for each of its settings."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.core.routing.admission import Policy
from penstock.sim.baselines.registry import Knobs
from penstock.sim.frontier.worlds import Part, World
from penstock.sim.ledger import Figures, Ledger
from penstock.sim.report import summaries_of, together
from penstock.sim.run import Run

FIGURES = ("attainment", "gpu_hours", "mean_replicas", "shed", "failed", "reversals", "arrivals")


@dataclass(frozen=True, slots=True)
class Case:
    """The setting and the seed are told apart."""

    world: World
    part: Part
    admission: Policy
    policy: str

    def runs(self, ledger: Ledger, knobs: Knobs, seeds: Iterable[int]) -> list[Figures]:
        """Of each seed, in their order. ledger: of `figures_of`."""
        told = {"world": self.world.name, "part": self.part, "admission": self.admission}
        drawn = [self.world.run_of(self.part, self.admission, seed) for seed in seeds]
        return [
            ledger.figures(scenario, self.policy, knobs, seed, told) for scenario, seed in drawn
        ]


def figures_of(done: Run) -> Figures:
    total = together(summaries_of(done))
    return {name: total[name] for name in FIGURES}
