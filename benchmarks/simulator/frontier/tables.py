"""Renders the results of the search as a table and as a plot."""

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.simulator.frontier.search import OURS, Point, Result
from rich.table import Table

from penstock.clients.machine.pyplot import pyplot
from penstock.sim.baselines.registry import Knob
from penstock.sim.report import Estimate

COLUMNS = 3
# Each rule has a marker of its own, because all lines but Penstock's are grey.
MARKERS = "osD^v<>Xp*hP"


def table_of(scenario: str, results: Sequence[Result], ours: Result | None) -> Table:
    """Table of results, cheapest first. ours: the result whose saving against each other is shown."""
    table = Table(
        "rule", "admission", "GPU-hours", "replicas", "reversals", "ours saves", "knobs",
        title=scenario,
    )  # fmt: skip
    for result in sorted(results, key=_cost):
        if (costs := result.costs) is None:
            best = max(result.points, key=lambda p: p.attainment)
            text = f"never: {best.attainment:.2%} at {best.cost:.2f}"
            table.add_row(result.policy, result.admission, text, "", "", "", _knob_text(best.knobs))
            continue
        estimate = Estimate.of(costs)
        point = _nearest(result)
        saving = ours.saving(result) if ours is not None and ours is not result else None
        table.add_row(
            result.policy,
            result.admission,
            f"{estimate.mean:.3f} ± {estimate.ci95:.3f}",
            f"{point.mean_replicas * estimate.mean / point.cost:.2f}",
            f"{point.reversals:.1f}",
            f"{saving.mean:+.1%} ± {saving.ci95:.1%}" if saving else "",
            _knob_text(point.knobs) + ("" if result.crossing else ", at most"),
        )
    return table


def _cost(result: Result) -> float:
    return mean(result.costs) if result.costs is not None else float("inf")


def _nearest(result: Result) -> Point:
    """Cheapest setting that attains the target."""
    if result.crossing is not None:
        return result.crossing.enough
    return min((p for p in result.points if p.attainment >= result.target), key=lambda p: p.cost)


def _knob_text(knobs: Mapping[str, Knob]) -> str:
    return " ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in knobs.items()
    )


def draw(panels: Mapping[str, Sequence[Result]], path: Path) -> None:
    """Plot attainment against GPU-hours, one panel per scenario. The path's suffix gives the format.

    Each dot is one setting of a rule. Penstock's line is dark and thick, the others are grey.
    """
    plt = pyplot()
    rows = ceil(len(panels) / COLUMNS)
    columns = min(COLUMNS, len(panels))
    figure, axes = plt.subplots(
        rows, columns, squeeze=False, figsize=(5.2 * columns + 2, 4 * rows), layout="constrained"
    )
    for panel in axes.flat[len(panels) :]:
        panel.set_axis_off()
    for panel, (name, results) in zip(axes.flat, panels.items(), strict=False):
        _panel(panel, name, results)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _panel(panel: Any, scenario: str, results: Sequence[Result]) -> None:
    target = results[0].target
    panel.axhline(target, color="#888888", lw=0.6, ls=":")
    for number, result in enumerate(results):
        _line(panel, result, MARKERS[number % len(MARKERS)])
    panel.set_ylim(0.9, 1.001)
    panel.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    panel.set_title(f"{scenario}: further to the left is cheaper", fontsize=10)
    panel.set_xlabel("GPU-hours")
    panel.set_ylabel(f"requests within both objectives (dotted: {target:.0%})")
    panel.legend(fontsize=8, frameon=False, loc="lower right")


def _line(panel: Any, result: Result, marker: str) -> None:
    """Draw one rule: dashed without admission."""
    points = sorted(result.points, key=lambda point: point.cost)
    is_ours = result.policy == OURS
    panel.plot(
        [point.cost for point in points], [point.attainment for point in points], label=result.policy,
        color="#12355b" if is_ours else "#9a9a9a", lw=2.6 if is_ours else 1.0, zorder=3 if is_ours else 2,
        marker=marker, ms=6 if is_ours else 5, linestyle="-" if result.admission == "deadline" else "--",
    )  # fmt: skip
