"""Cache of results in a folder, one file each, shared by processes.

The key of a result is a hash of its inputs, so that a changed load or rule is measured anew. A change of the
simulator is not noticed: use another folder then.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.simulator.panel.load import Load

import penstock

Result = dict[str, Any]
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


def key_of(load: Load, what: str, knobs: Mapping[str, str], *sources: Path) -> str:
    """Key of a result. sources: folders and modules that it depends on."""
    inputs = [load.scenario.model_dump(mode="json"), load.seed, what, dict(knobs)]
    inputs += [source_digest(source) for source in sources]
    digest = sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
    return f"{what.replace('/', '-')}-{load.seed}-{digest[:20]}"


@cache
def source_digest(root: Path) -> str:
    """Digest of all modules below a folder, or of one module."""
    paths = [root] if root.suffix else sorted(root.rglob("*.py"))
    return sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()
