"""Reads the generated dashboards: their panels, queries, annotations and variables."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.observability.dashboards.files import files

BOARDS: Mapping[str, Any] = {name: json.loads(text) for name, text in files().items()}
# Values of the variables that Grafana itself defines.
BUILT_IN = {"$__rate_interval": "1m", "$__range": "1h"}
VARIABLE = re.compile(r"\$\{?(\w+)\}?")


@dataclass(frozen=True)
class Expression:
    """An expression of a dashboard. where: dashboard and panel. legend: text with labels in braces."""

    where: str
    text: str
    legend: str

    def __str__(self) -> str:
        return self.where

    @property
    def evaluable(self) -> str:
        """The expression with values in the place of variables."""
        text = self.text
        for name, value in BUILT_IN.items():
            text = text.replace(name, value)
        return VARIABLE.sub(".+", text)


def panels(board: Any) -> list[Any]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[Expression]:
    for name, board in BOARDS.items():
        for panel in panels(board):
            for target in panel["targets"]:
                where = f"{name} {panel['title']} {target['refId']}"
                yield Expression(where, target["expr"], target["legendFormat"])
        for mark in board["annotations"]["list"]:
            legend = mark["titleFormat"] + mark["textFormat"]
            yield Expression(f"{name} {mark['name']}", mark["expr"], legend)
