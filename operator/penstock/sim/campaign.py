"""Runs one policy on one scenario with several seeds, in one or more processes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from penstock.sim.plot import draw
from penstock.sim.processes import map_in_processes
from penstock.sim.report import Estimate, Summary, combine, summaries_of
from penstock.sim.run import run
from penstock.sim.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Campaign:
    """Results of one policy on one scenario. summaries: for each seed, one per service."""

    scenario: Scenario
    policy: str
    knobs: Mapping[str, str]
    summaries: tuple[tuple[Summary, ...], ...]

    @property
    def total(self) -> dict[str, Estimate]:
        return combine(self.summaries)

    @property
    def by_service(self) -> dict[str, dict[str, Estimate]]:
        return {
            service.name: combine([[summaries[index]] for summaries in self.summaries])
            for index, service in enumerate(self.scenario.services)
        }


def hold(
    scenario: Scenario,
    policy: str,
    knobs: Mapping[str, str],
    seeds: int,
    jobs: int = 1,
    plot: Path | None = None,
) -> Campaign:
    """Run seeds 0 to seeds-1 in `jobs` processes. plot: file that gets a picture of seed 0."""
    one = partial(_one, scenario, policy, dict(knobs), plot)
    summaries = map_in_processes(one, range(seeds), jobs)
    return Campaign(scenario, policy, dict(knobs), tuple(summaries))


def _one(
    scenario: Scenario, policy: str, knobs: Mapping[str, str], plot: Path | None, seed: int
) -> tuple[Summary, ...]:
    done = run(scenario, policy, seed, knobs)
    if plot is not None and seed == 0:
        draw(done, plot)
    return tuple(summaries_of(done))
