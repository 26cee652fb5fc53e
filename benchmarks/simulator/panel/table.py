"""Compares rules on a panel: figures per load, per class of loads, and over all, against the bars."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

from benchmarks.simulator.panel.load import Load
from benchmarks.simulator.run_cache import Result
from rich.table import Table

# A load counts as attained down to this far below the objective.
TOLERANCE = 0.002
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Row:
    """Results of one load. fixed: GPU-hours of the best fixed number of replicas; rules: by name."""

    load: Load
    fixed: Result
    bound_gpu_hours: float
    rules: Mapping[str, Result]

    def attains(self, rule: str) -> bool:
        attained = float(self.rules[rule]["attainment"])
        return attained >= self.load.service.attainment - TOLERANCE

    def against_fixed(self, rule: str) -> float:
        return float(self.rules[rule]["gpu_hours"] / self.fixed["gpu_hours"])

    def against_bound(self, rule: str) -> float:
        return float(self.rules[rule]["gpu_hours"] / self.bound_gpu_hours)


@dataclass(frozen=True, slots=True)
class Score:
    """Figures of a rule over a class of loads. GPU-hours are relative to the other's."""

    loads: int
    attained: int
    mean_shortfall: float
    mean_of_fixed: float
    worst_of_fixed: float
    mean_of_bound: float

    @classmethod
    def of(cls, rows: Sequence[Row], rule: str) -> "Score":
        shortfalls = [
            max(0.0, row.load.service.attainment - row.rules[rule]["attainment"]) for row in rows
        ]
        ratios = [row.against_fixed(rule) for row in rows]
        return cls(
            len(rows),
            sum(row.attains(rule) for row in rows),
            mean(shortfalls),
            mean(ratios),
            max(ratios),
            mean(row.against_bound(rule) for row in rows),
        )


def load_table(rows: Sequence[Row], rules: Sequence[str]) -> Table:
    """Table with a row for each load.

    For each rule: attainment, and GPU-hours relative to the best fixed number.
    """
    table = Table(
        "seed", "arrivals", "lengths", "engine", "start-up", "cv", "goal", "fixed", "bound"
    )
    for rule in rules:
        table.add_column(rule, justify="right")
    for row in rows:
        load, service = row.load, row.load.service
        hours = load.scenario.duration_s * service.engine.gpus / 3600
        cells = [
            str(load.seed), load.kind, load.lengths, service.profile, f"{service.startup_s:g} s",
            f"{load.cv:g}", f"{service.attainment:.0%}",
            f"{row.fixed['replicas']}", f"{row.bound_gpu_hours / hours:.2f}",
        ]  # fmt: skip
        table.add_row(*cells, *(_cell(row, rule) for rule in rules))
    return table


def class_table(rows: Sequence[Row], rules: Sequence[str]) -> Table:
    """Table with a row for each rule and class of loads."""
    table = Table(
        "rule", "loads", "number", "attain", "points short", "of fixed", "worst", "of bound"
    )
    for rule in rules:
        for name, members in classes_of(rows):
            score = Score.of(members, rule)
            table.add_row(
                rule, name, str(score.loads), str(score.attained),
                f"{100 * score.mean_shortfall:.2f}", f"{score.mean_of_fixed:.3f}",
                f"{score.worst_of_fixed:.2f}", f"{score.mean_of_bound:.2f}",
            )  # fmt: skip
        table.add_section()
    return table


def plan_table(rows: Sequence[Row], plans: Sequence[str]) -> Table:
    """Table with a row for each class of loads.

    For each plan: loads that attain, and mean and median of GPU-hours relative to the best fixed number.
    """
    table = Table("loads", "number")
    for plan in plans:
        table.add_column(plan, justify="right")
    for name, members in classes_of(rows):
        cells = []
        for plan in plans:
            score = Score.of(members, plan)
            middle = median(row.against_fixed(plan) for row in members)
            cells.append(f"{score.attained} {score.mean_of_fixed:.2f} {middle:.2f}")
        table.add_row(name, str(len(members)), *cells)
    return table


def classes_of(rows: Sequence[Row]) -> Iterator[tuple[str, Sequence[Row]]]:
    """Classes of loads by kind of arrivals, by lengths, and all of them last."""
    by: tuple[Callable[[Row], str], ...] = (
        lambda row: row.load.kind,
        lambda row: row.load.lengths,
        lambda row: "all",
    )
    for name_of in by:
        names = dict.fromkeys(name_of(row) for row in rows)
        for name in names:
            yield name, [row for row in rows if name_of(row) == name]


def fixed_of_bound(rows: Sequence[Row]) -> float:
    """Mean ratio of the best fixed number's GPU-hours to the bound. Raises ValueError if one is below it."""
    ratios = {row.load.seed: float(row.fixed["gpu_hours"]) / row.bound_gpu_hours for row in rows}
    if wrong := [seed for seed, ratio in ratios.items() if ratio < 1 - ROUNDING]:
        raise ValueError(f"the bound is above the best fixed number of {wrong}")
    return mean(ratios.values())


def _cell(row: Row, rule: str) -> str:
    mark = " " if row.attains(rule) else "!"
    return f"{row.rules[rule]['attainment']:.2%}{mark} {row.against_fixed(rule):.2f}"
