"""Cache of finished runs in a file, one line of JSON each.

The key of a run is a hash of its inputs and of the source of its rule. Use a new file after a change of the
simulator itself.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

from penstock.core.scaling import by_objectives
from penstock.sim import baselines
from penstock.sim.baselines.registry import Knobs
from penstock.sim.run import Run, run
from penstock.sim.scenario import Scenario

Figures = dict[str, float]


class Ledger:
    """Runs simulations and stores their figures. figures_of: reduces a run to named numbers."""

    def __init__(self, path: Path, figures_of: Callable[[Run], Figures]) -> None:
        self._path, self._figures_of = path, figures_of
        self._known: dict[str, Figures] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self._known[entry["key"]] = entry["figures"]

    def figures(
        self, scenario: Scenario, policy: str, knobs: Knobs, seed: int, labels: Mapping[str, str]
    ) -> Figures:
        """Figures of a run, from the file or from a run made now. labels: further fields of its line."""
        key = _key(scenario, policy, knobs, seed)
        if key not in self._known:
            texts = {name: str(value).lower() for name, value in knobs.items()}
            figures = self._figures_of(run(scenario, policy, seed, texts))
            entry = {"key": key, **labels, "policy": policy, "knobs": knobs, "seed": seed}
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps({**entry, "figures": figures}) + "\n")
            self._known[key] = figures
        return self._known[key]


def _key(scenario: Scenario, policy: str, knobs: Knobs, seed: int) -> str:
    parts = [scenario.model_dump(mode="json"), policy, knobs, seed, _source(policy)]
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


@cache
def _source(policy: str) -> str:
    """Digest of the package of the rule, without registry.py, whose effect is in the knobs."""
    package = Path(inspect.getfile(by_objectives if policy == "penstock" else baselines)).parent
    paths = sorted(path for path in package.glob("*.py") if path.name != "registry.py")
    return sha256("".join(path.read_text() for path in paths).encode()).hexdigest()[:12]
