"""Panels of the generated dashboards, and the results of their queries in a Prometheus."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

# Panels that stay empty in the run, by dashboard and title, with the reason.
EMPTY: Mapping[tuple[str, str], str] = {
    ("engine", "GPU memory"): "the run computes on the CPU",
    ("engine", "GPU utilization"): "the run computes on the CPU",
}


@dataclass(frozen=True, slots=True)
class Query:
    """An expression with variables.

    legend: a text with labels in double braces. is_instant: whether it is evaluated at the end only.
    """

    expression: str
    legend: str
    is_instant: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel.

    position: column, row, width and height on Grafana's grid. states: texts and colors by number. dashed:
    pattern of the legends of dashed lines.
    """

    board: str
    title: str
    kind: str
    unit: str
    position: tuple[int, int, int, int]
    queries: tuple[Query, ...]
    states: Mapping[str, tuple[str, str]]
    dashed: str
    is_stacked: bool
    is_logarithmic: bool


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a panel: values at Unix times."""

    name: str
    times_s: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Span:
    """The time that queries are evaluated over. scrape_s: interval of the scrapes."""

    start_s: float
    end_s: float
    scrape_s: float

    def substitute(self, expression: str) -> str:
        """Replace variables as Grafana does: all services, revisions and pods are chosen."""
        window = f"{4 * self.scrape_s:.0f}s"  # Grafana's rule
        expression = expression.replace("$__rate_interval", window)
        expression = expression.replace("$__range", f"{self.end_s - self.start_s:.0f}s")
        return re.sub(r"\$(service|revision|pod)\b", ".+", expression)


def read_panels(folder: Path) -> list[Panel]:
    """The panels of all dashboards in a folder, without rows."""
    boards = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    return [
        _panel(name, each)
        for name, board in boards.items()
        for each in board["panels"]
        if each["type"] != "row"
    ]


def read_marks(folder: Path) -> list[tuple[str, Query, bool]]:
    """Annotations, which all dashboards share: color, query, and whether values are times in ms."""
    board = json.loads(next(folder.glob("*.json")).read_text())
    return [
        (
            mark["iconColor"],
            Query(mark["expr"], mark["name"]),
            mark["useValueForTime"],
        )
        for mark in board["annotations"]["list"]
    ]


def evaluate(prometheus: httpx.Client, query: Query, span: Span) -> list[Series]:
    """Evaluate a query over the span. Raises HTTPStatusError for one that Prometheus refuses.

    Values that are not finite are left out: a quantile of no observations is none.
    """
    answer = prometheus.get(
        "/api/v1/query_range",
        params={
            "query": span.substitute(query.expression),
            "start": span.end_s if query.is_instant else span.start_s,
            "end": span.end_s,
            "step": span.scrape_s,
        },
    )
    answer.raise_for_status()
    found = []
    for result in answer.json()["data"]["result"]:
        points = [(time_s, float(value)) for time_s, value in result["values"]]
        points = [point for point in points if math.isfinite(point[1])]
        if points:
            times_s, values = zip(*points, strict=True)
            found.append(Series(_name(query.legend, result["metric"]), times_s, values))
    return found


def _name(legend: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), legend).strip()


def _panel(board: str, panel: Any) -> Panel:
    defaults, grid = panel["fieldConfig"]["defaults"], panel["gridPos"]
    custom = defaults.get("custom", {})
    return Panel(
        board=board,
        title=panel["title"],
        kind=panel["type"],
        unit=defaults["unit"],
        position=(grid["x"], grid["y"], grid["w"], grid["h"]),
        queries=tuple(
            Query(each["expr"], each["legendFormat"], each["instant"]) for each in panel["targets"]
        ),
        states={
            number: (state["text"], state["color"])
            for mapping in defaults.get("mappings", [])
            for number, state in mapping["options"].items()
        },
        dashed="|".join(
            each["matcher"]["options"].strip("/") for each in panel["fieldConfig"]["overrides"]
        )
        or "$^",
        is_stacked=custom.get("stacking", {}).get("mode") == "normal",
        is_logarithmic=custom.get("scaleDistribution", {}).get("type") == "log",
    )
