"""Draws dashboards from the results of their own queries, as a stand-in for Grafana's renderer."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.cluster.campaigns.dashboard_queries import Panel, Series

from penstock.clients.machine.pyplot import pyplot

COLUMNS = 24
INCHES_PER_COLUMN, INCHES_PER_ROW = 0.85, 0.42
# Grafana's names of colors, as matplotlib knows them.
COLORS = {
    "green": "#73bf69", "yellow": "#fade2a", "red": "#f2495c", "blue": "#5794f2", "orange": "#ff9830",
    "purple": "#b877d9", "dark-red": "#c4162a", "dark-green": "#37872d", "light-blue": "#8ab8ff",
}  # fmt: skip
# Space left of a plot for its names or numbers, as a fraction of the picture, and below it for time and
# legend, in rows of the grid.
NAMES_WIDTH, NUMBERS_WIDTH, LEGEND_ROWS = 0.075, 0.035, 2.3
MAX_LEGEND_ROWS = 3
# Height of the line on top that says what the marks are, in rows of the grid.
HEAD_ROWS = 1.2
# A state that lasts for a smaller fraction of the time has no text on it.
MIN_TEXT_WIDTH = 0.06

# Lines of each panel by title, and marks: color, text and Unix times.
Results = Mapping[str, Sequence[Series]]
Marks = Sequence[tuple[str, str, Sequence[float]]]


def draw(panels: Sequence[Panel], results: Results, marks: Marks, path: Path) -> None:
    """Draw the panels of one dashboard on the grid that they have in Grafana."""
    plt = pyplot()
    rows = _without_headlines(panels)
    height = HEAD_ROWS + max(rows[panel.title] + panel.position[3] for panel in panels)
    figure = plt.figure(
        figsize=(COLUMNS * INCHES_PER_COLUMN, height * INCHES_PER_ROW), facecolor="white"
    )
    start_s, end_s = _span(results)
    for panel in panels:
        column, _, width, rise = panel.position
        left, bottom = column / COLUMNS, 1 - (HEAD_ROWS + rows[panel.title] + rise) / height
        names_width = NAMES_WIDTH if panel.kind == "state-timeline" else NUMBERS_WIDTH
        place = (
            left + names_width, bottom + LEGEND_ROWS / height,
            width / COLUMNS - names_width - 0.01, (rise - LEGEND_ROWS - 1.0) / height,
        )  # fmt: skip
        axes = figure.add_axes(place)
        _draw_panel(axes, panel, results[panel.title])
        axes.set_xlim(start_s, end_s)
        _label_times(axes, start_s, end_s)
        _draw_marks(axes, marks)
    _explain_marks(figure, plt.Line2D, marks)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=70)
    plt.close(figure)


def _draw_marks(axes: Any, marks: Marks) -> None:
    """Vertical lines, whose dashes leave room for those of other colors at the same time."""
    colors = sorted({color for color, _, _ in marks})
    for color, _, times_s in marks:
        dashes = (2 * colors.index(color), (2, 2 * len(colors) - 2))
        for time_s in times_s:
            axes.axvline(time_s, color=COLORS[color], linewidth=1.2, linestyle=dashes)


def _explain_marks(figure: Any, line: Any, marks: Marks) -> None:
    """A line on top of the picture with the color and the name of each kind of mark."""
    names = {color: name for color, name, _ in marks}
    handles = [
        line([], [], color=COLORS[color], linewidth=1.5, linestyle=":", label=name)
        for color, name in names.items()
    ]
    figure.legend(handles=handles, loc="upper left", ncols=len(handles), frameon=False, fontsize=9)


def _without_headlines(panels: Sequence[Panel]) -> dict[str, int]:
    """Rows of the panels without the lines that only hold headlines."""
    used = sorted(
        {row for panel in panels for row in range(panel.position[1], sum(panel.position[1::2]))}
    )
    place = {row: number for number, row in enumerate(used)}
    return {panel.title: place[panel.position[1]] for panel in panels}


def _span(results: Results) -> tuple[float, float]:
    times = [time for lines in results.values() for line in lines for time in line.times_s]
    return min(times), max(times)


def _draw_panel(axes: Any, panel: Panel, lines: Sequence[Series]) -> None:
    axes.set_title(panel.title, fontsize=10, loc="left", fontweight="bold")
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.3)
    if panel.kind == "state-timeline":
        _draw_states(axes, panel, lines)
        return
    if panel.is_stacked:
        _draw_areas(axes, lines)
    else:
        for line in lines:
            style = "--" if re.search(panel.dashed, line.name) else "-"
            axes.plot(line.times_s, line.values, style, linewidth=1.1, label=line.name)
    if panel.is_logarithmic:
        axes.set_yscale("log")
    elif all(value >= 0 for line in lines for value in line.values):
        axes.set_ylim(bottom=-0.02 * axes.get_ylim()[1])  # lines at 0 stay visible
    if panel.unit == "percentunit":
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
    elif panel.unit == "s":
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} s")
    handles, names = axes.get_legend_handles_labels()
    _legend(axes, handles, names)


def _draw_areas(axes: Any, lines: Sequence[Series]) -> None:
    """Stack the lines; where one has no value it counts as 0."""
    times = sorted({time for line in lines for time in line.times_s})
    found = [dict(zip(line.times_s, line.values, strict=True)) for line in lines]
    values = [[each.get(time, 0.0) for time in times] for each in found]
    axes.stackplot(times, values, labels=[line.name for line in lines], alpha=0.55)


def _draw_states(axes: Any, panel: Panel, lines: Sequence[Series]) -> None:
    """A row of bars for each line, in the colors of its states."""
    shown: dict[str, str] = {}
    for row, line in enumerate(lines):
        all_s = line.times_s[-1] - line.times_s[0]
        for value, start_s, end_s in _constant_intervals(line):
            text, color = panel.states[f"{value:g}"]
            shown[text] = COLORS.get(color, color)
            axes.barh(row, end_s - start_s, left=start_s, height=0.8, color=shown[text])
            if end_s - start_s > MIN_TEXT_WIDTH * all_s * COLUMNS / panel.position[2]:
                axes.text((start_s + end_s) / 2, row, text, ha="center", va="center", fontsize=7)
    axes.set_yticks(range(len(lines)), [line.name for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    handles = [axes.barh(0, 0, color=color) for color in shown.values()]
    _legend(axes, handles, list(shown))


def _constant_intervals(line: Series) -> Iterator[tuple[float, float, float]]:
    """Yield value, start and end of each interval in which the value stayed the same."""
    times = line.times_s
    start_s = times[0]
    for number, value in enumerate(line.values):
        is_last = number + 1 == len(times)
        if is_last or line.values[number + 1] != value:
            end_s = times[number] if is_last else times[number + 1]
            yield value, start_s, end_s
            start_s = end_s


def _legend(axes: Any, handles: Sequence[Any], names: Sequence[str]) -> None:
    """Names below the plot, as many as there is room for."""
    longest = max((len(name) for name in names), default=1)
    width = axes.get_position().width * COLUMNS * INCHES_PER_COLUMN
    columns = max(1, min(len(names), int(width / (0.062 * longest + 0.4))))
    max_names = columns * MAX_LEGEND_ROWS
    axes.legend(
        handles[:max_names], names[:max_names], fontsize=7, ncols=columns, frameon=False, loc="upper left",
        bbox_to_anchor=(-0.02, -0.09), columnspacing=1.0, handlelength=1.2,
    )  # fmt: skip


def _label_times(axes: Any, start_s: float, end_s: float) -> None:
    """Four round times of the day below the axis."""
    step_s = max(30, round((end_s - start_s) / 4 / 30) * 30)
    first_s = (int(start_s) // step_s + 1) * step_s
    ticks = range(first_s, int(end_s), step_s)
    names = [datetime.fromtimestamp(tick, UTC).strftime("%H:%M:%S") for tick in ticks]
    axes.set_xticks(list(ticks), names)
