"""Numbers on the page about scaling are those of the code."""

import re
from collections.abc import Iterator
from dataclasses import astuple, is_dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.core.scaling.by_objectives.rule import ObjectivesRule
from penstock.core.scaling.learned import priors
from penstock.core.scaling.learned.capacity import EngineLimits, Mix
from penstock.core.scaling.learned.footprint import Demand, Footprint
from penstock.core.spec.objectives import Objectives

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/concepts/scaling.md"
SCALING = ROOT / "operator/penstock/core/scaling"
# Folders all of whose constants are in the table.
FOLDERS = ("by_objectives", "learned", "variants")
# Data of hardware, which have a source for each row, and what `penstock explain` tries.
NOT_IN_TABLE = {"learned/priors", "what_if"}
# The page describes these instead of listing them.
DESCRIBED = {"DEVIATIONS"}
# A version and an empty value are no settings.
NO_SETTINGS = {"NOTHING", "VERSION"}
RULE = ObjectivesRule(prior=priors.GPU)


def rows() -> Iterator[tuple[str, list[str], str]]:
    """Module, names and values of each row of the table."""
    table = PAGE.read_text().partition("\n## Constants\n")[2]
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and "`" in cells[1]:
            yield cells[0], re.findall(r"`([\w.]+)`", cells[1]), cells[2]


ROWS = list(rows())


@pytest.mark.parametrize(("module", "names", "values"), ROWS, ids=lambda value: str(value))
def test_constants_have_the_values_of_the_table(module: str, names: list[str], values: str) -> None:
    if DESCRIBED.intersection(names):
        return
    found = list(flatten([value_of(module, name) for name in names]))
    numbers = re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?", values)
    assert [float(number) for number in numbers] == found


def test_the_table_has_all_constants() -> None:
    named = {(module, name) for module, names, _ in ROWS for name in names}
    assert set(constants()) - named == set()


def test_the_example() -> None:
    mix = Mix(prompt_tokens=1000, uncached_tokens=1000, output_tokens=200)
    limits = EngineLimits(kv_tokens=400_000, max_num_seqs=256)
    replica = Footprint.of(priors.GPU, mix, limits, Objectives(ttft_s=2, tpot_s=0.1))
    load = replica.replicas(Demand(prompt_tokens=20_000, answers=20))
    text = " ".join(PAGE.read_text().split())
    for part in (
        f"stays for {replica.stay_s:.0f} s",
        f"slack of {replica.slack_s:.2f} s",
        f"Time takes {20_000 * replica.prompt_token:.2f} replicas for prompts",
        f"and {20 * replica.answer:.2f} for answers",
        f"the KV cache {20 * replica.kv:.2f}, the batch {20 * replica.batch:.2f}.",
        f"the load is {load:.2f} replicas, of {replica.capacity.rate:.2f} requests/s each",
        f"(limit: {replica.capacity.limit})",
    ):
        assert part in text


def constants() -> Iterator[tuple[str, str]]:
    """Module and name of each constant of the folders."""
    for folder in FOLDERS:
        for path in (SCALING / folder).glob("*.py"):
            module = path.stem if folder == FOLDERS[0] else f"{folder}/{path.stem}"
            if module not in NOT_IN_TABLE and path.stem != "__init__":
                yield from ((module, name) for name in own_constants(import_of(module)))


def import_of(module: str) -> ModuleType:
    """Import a module by its name in the table: in by_objectives, or in a folder above it."""
    folders = (SCALING / "by_objectives", SCALING, SCALING.parent)
    path = next(path for folder in folders if (path := folder / f"{module}.py").exists())
    return import_module(".".join(path.relative_to(ROOT / "operator").with_suffix("").parts))


def value_of(module: str, name: str) -> Any:
    if name.startswith("ObjectivesRule."):
        return getattr(RULE, name.removeprefix("ObjectivesRule."))
    return getattr(import_of(module), name)


def own_constants(module: ModuleType) -> set[str]:
    """Names that the module itself assigns in capitals, and that hold numbers."""
    assigned = re.findall(
        r"^([A-Z][A-Z_, ]*)(?::[^=]+)? = ", Path(str(module.__file__)).read_text(), re.MULTILINE
    )
    names = {name.strip() for each in assigned for name in each.split(",")}
    return {name for name in names if list(flatten([getattr(module, name)]))} - NO_SETTINGS


def flatten(values: Any) -> Iterator[float]:
    """Numbers in nested tuples, lists and dataclasses, in their order."""
    for value in values:
        if is_dataclass(value) and not isinstance(value, type):
            yield from flatten(astuple(value))
        elif isinstance(value, (tuple, list)):
            yield from flatten(value)
        elif isinstance(value, (int, float)):
            yield float(value)
