"""Finished runs, one a line of JSON: what is there is not run again.

A run is known by all that goes into it, and by the source of its rule. After a change of the
simulator itself, begin with a new file.
"""

import inspect
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from penstock.core import rules, sizing
from penstock.core.admission import Policy
from penstock.core.rules.registry import Knobs
from penstock.sim.frontier.worlds import Part, World
from penstock.sim.report import summaries_of, together
from penstock.sim.run import run
from penstock.sim.scenario import Scenario

FIGURES = ("attainment", "gpu_hours", "mean_replicas", "shed", "failed", "reversals", "arrivals")


@dataclass(frozen=True, slots=True)
class Case:
    """Who is run on what; the seed is told apart."""

    world: World
    part: Part
    admission: Policy
    policy: str


Figures = dict[str, float]


class Ledger:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Figures] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self._known[entry["key"]] = entry["figures"]

    def runs(self, case: Case, knobs: Knobs, seeds: Iterable[int]) -> list[Figures]:
        """Of each seed, in their order; those that are not known yet are run now."""
        return [self._run(case, knobs, seed) for seed in seeds]

    def _run(self, case: Case, knobs: Knobs, seed: int) -> Figures:
        scenario, drawn = case.world.run_of(case.part, case.admission, seed)
        key = _key(scenario, case.policy, knobs, drawn)
        if key not in self._known:
            texts = {name: str(value).lower() for name, value in knobs.items()}
            total = together(summaries_of(run(scenario, case.policy, drawn, texts)))
            figures = {name: total[name] for name in FIGURES}
            told = {
                "world": case.world.name, "part": case.part, "admission": case.admission,
                "policy": case.policy, "knobs": knobs, "seed": seed,
            }  # fmt: skip
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps({"key": key, **told, "figures": figures}) + "\n")
            self._known[key] = figures
        return self._known[key]


def _key(scenario: Scenario, policy: str, knobs: Knobs, seed: int) -> str:
    parts = [scenario.model_dump(mode="json"), policy, knobs, seed, _source(policy)]
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


@cache
def _source(policy: str) -> str:
    """A digest of the package that the rule is in; but for the registry, which is told by the knobs."""
    package = Path(inspect.getfile(sizing if policy == "penstock" else rules)).parent
    paths = sorted(path for path in package.glob("*.py") if path.name != "registry.py")
    return sha256("".join(path.read_text() for path in paths).encode()).hexdigest()[:12]
