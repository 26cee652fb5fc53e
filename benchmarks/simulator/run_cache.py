"""Cache of results in a folder, one file each, shared by processes.

The key of a result is a hash of its inputs, so that a changed scenario or rule is measured anew. A change of
the simulator is not noticed: use another folder then.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import penstock
from penstock.sim.baselines.registry import Knob
from penstock.sim.run import Run, run
from penstock.sim.scenario import Scenario

Result = dict[str, Any]
Figures = dict[str, float]
OUR_RULE = "penstock"
PACKAGE = Path(next(iter(penstock.__path__)))
# Folders whose source is part of the key of a rule's result.
SOURCES = {OUR_RULE: PACKAGE / "core/scaling"}
BASELINES = PACKAGE / "sim/baselines"


def cached(folder: Path, key: str, compute: Callable[[], Result]) -> Result:
    """Result under a key, from the folder or computed now."""
    path = folder / f"{key}.json"
    if path.exists():
        return dict(json.loads(path.read_text()))
    result = compute()
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{id(result)}.part")
    part.write_text(json.dumps(result))
    part.replace(path)
    return result


def figures(
    folder: Path, scenario: Scenario, rule: str, knobs: Mapping[str, Knob], seed: int,
    figures_of: Callable[[Run], Figures],
) -> Figures:  # fmt: skip
    """Figures of a rule's run, from the folder or from a run made now. figures_of: reduces a run to them."""
    texts = {name: str(value).lower() for name, value in knobs.items()}
    key = key_of(scenario, seed, rule, knobs, SOURCES.get(rule, BASELINES))
    return cached(folder, key, lambda: figures_of(run(scenario, rule, seed, texts)))


def key_of(
    scenario: Scenario, seed: int, what: str, knobs: Mapping[str, Knob], *sources: Path
) -> str:
    """Key of a result. sources: folders and modules that it depends on."""
    inputs = [scenario.model_dump(mode="json"), seed, what, dict(knobs)]
    inputs += [source_digest(source) for source in sources]
    digest = sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
    return f"{what.replace('/', '-')}-{seed}-{digest[:20]}"


@cache
def source_digest(root: Path) -> str:
    """Digest of all modules below a folder, or of one module."""
    paths = [root] if root.suffix else sorted(root.rglob("*.py"))
    return sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()
