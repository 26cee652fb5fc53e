"""Renders the results of the search as a table and as a plot."""

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.simulator.frontier.search import Point, Result
from rich.table import Table

from penstock.clients.pyplot import pyplot
from penstock.sim.baselines.registry import Knob
from penstock.sim.report import Estimate

COLUMNS = 3


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
    """Plot attainment against GPU-hours, one panel per scenario. The path's suffix gives the format."""
    plt = pyplot()

    rows = ceil(len(panels) / COLUMNS)
    columns = min(COLUMNS, len(panels))
    figure, axes = plt.subplots(
        rows, columns, squeeze=False, figsize=(5.2 * columns + 2, 4 * rows), layout="constrained"
    )
    rules = list(dict.fromkeys(r.policy for results in panels.values() for r in results))
    colors = {rule: plt.get_cmap("tab20")(i) for i, rule in enumerate(rules)}
    for panel in axes.flat[len(panels) :]:
        panel.set_axis_off()
    for panel, (name, results) in zip(axes.flat, panels.items(), strict=False):
        for result in results:
            _line(panel, result, colors.get(result.policy, "black"))
        panel.axhline(results[0].target, color="#888888", lw=0.6)
        panel.set_ylim(0.9, 1.001)
        panel.set_title(name)
        panel.set_xlabel("GPU-hours")
        panel.set_ylabel("requests within both objectives")
    handles = [plt.Line2D([], [], color=colors.get(r, "black"), marker="o", label=r) for r in rules]
    figure.legend(handles=handles, loc="outside right upper", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _line(panel: Any, result: Result, color: Any) -> None:
    """Draw one rule: dashed without admission, thicker for Penstock's."""
    points = sorted(result.points, key=lambda point: point.cost)
    panel.plot(
        [point.cost for point in points], [point.attainment for point in points],
        color=color, marker="o", ms=3, lw=2.4 if result.policy == "penstock" else 1.0,
        linestyle="-" if result.admission == "deadline" else "--",
    )  # fmt: skip
