"""Numbers on the page about scaling are those of the code."""

import re
from collections.abc import Iterator
from dataclasses import astuple, is_dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from penstock.core.scaling.by_objectives.smoothing import FORECASTERS

from penstock.core.scaling.learned import priors
from penstock.core.scaling.by_objectives.forecast import Forecast
from penstock.core.scaling.by_objectives.rule import Sizing
from penstock.core.scaling.learned.capacity import Mix, Room
from penstock.core.scaling.learned.footprint import Demand, Footprint
from penstock.core.spec.objectives import Objectives

PAGE = Path(__file__).parents[2] / "docs/concepts/scaling.md"
PACKAGE = "penstock.core.scaling.by_objectives"
# Forecasters follow from the time constants. The page describes the deviations instead of listing them.
DESCRIBED = {"FORECASTERS", "DEVIATIONS"}
SIZING = Sizing(prior=priors.GPU)


def rows() -> Iterator[tuple[list[str], list[str], str]]:
    """Modules, names and values of each row of the table."""
    table = PAGE.read_text().partition("\n## Constants\n")[2]
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and "`" in cells[1]:
            yield cells[0].split(", "), re.findall(r"`([\w.]+)`", cells[1]), cells[2]


ROWS = list(rows())


@pytest.mark.parametrize(("modules", "names", "values"), ROWS, ids=lambda value: str(value))
def test_constants_have_the_values_of_the_table(
    modules: list[str], names: list[str], values: str
) -> None:
    if DESCRIBED.intersection(names):
        return
    found = [value_of(module, name) for module in modules for name in names]
    assert [float(n) for n in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e\d+)?", values)] == list(
        flatten(found)
    )


def test_the_table_has_all_constants() -> None:
    named = {(module, name) for modules, names, _ in ROWS for module in modules for name in names}
    modules = {module for module, _ in named}
    constants = {(m, name) for m in modules for name in own_constants(import_of(m))}
    assert {(m, n) for m, n in constants - named if n not in DESCRIBED} == set()


def test_the_example() -> None:
    mix = Mix(prompt_tokens=1000, uncached_tokens=1000, output_tokens=200)
    room = Room(kv_tokens=400_000, max_num_seqs=256)
    replica = Footprint.of(priors.GPU, mix, room, Objectives(ttft_s=2, tpot_s=0.1))
    load = replica.replicas(Demand(prompt_tokens=20_000, answers=20))
    lead_s = SIZING.startup_s + 2 * SIZING.period_s
    forecast = Forecast().after(
        0, load, (load,) * len(FORECASTERS), lead_s=lead_s, noise=replica.noise
    )
    upper = forecast.upper(0.01, lead_s=lead_s, noise=replica.noise)
    backlog = replica.waiting_replicas(50_000, 50, lead_s)
    burst = replica.prompt_token * 200_000 / (2 + replica.slack_s)
    text = " ".join(PAGE.read_text().split())
    for part in (
        f"stays for {replica.stay_s:.0f} s",
        f"slack of {replica.slack_s:.2f} s",
        f"Time takes {20_000 * replica.prompt_token:.2f} replicas for prompts",
        f"and {20 * replica.answer:.2f} for answers",
        f"the KV cache {20 * replica.kv:.2f}, the batch {20 * replica.batch:.2f}.",
        f"the load is {load:.2f} replicas, of {replica.capacity.rate:.2f} requests/s each",
        f"(limit: {replica.capacity.limit})",
        f"expected beyond {upper:.2f} replicas",
        f"50 such requests adds {backlog:.2f}.",
        f"the time of {burst:.2f} replicas",
    ):
        assert part in text


def import_of(module: str) -> ModuleType:
    return import_module(f"{PACKAGE}.{module}")


def value_of(module: str, name: str) -> Any:
    if name.startswith("Sizing."):
        return getattr(SIZING, name.removeprefix("Sizing."))
    return getattr(import_of(module), name)


def own_constants(module: ModuleType) -> set[str]:
    """Names that the module itself assigns in capitals, other than data of no number."""
    assigned = re.findall(
        r"^([A-Z][A-Z_, ]*)(?::[^=]+)? = ", Path(str(module.__file__)).read_text(), re.M
    )
    names = {name.strip() for each in assigned for name in each.split(",")}
    return {name for name in names if list(flatten([getattr(module, name)]))} - {"NOTHING"}


def flatten(values: Any) -> Iterator[float]:
    """Numbers in nested tuples, lists and dataclasses, in their order."""
    for value in values:
        if is_dataclass(value) and not isinstance(value, type):
            yield from flatten(astuple(value))
        elif isinstance(value, (tuple, list)):
            yield from flatten(value)
        elif isinstance(value, (int, float)):
            yield float(value)
