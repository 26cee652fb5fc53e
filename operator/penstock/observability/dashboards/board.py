"""A dashboard: rows of panels with variables, annotations and links to the others."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from penstock.observability.dashboards.annotations import MARKS
from penstock.observability.dashboards.panels import Panel
from penstock.observability.dashboards.variables import Variable

TAG = "penstock"


class Row:
    """Panels below a headline."""

    def __init__(self, title: str, *panels: Panel) -> None:
        self.title, self.panels = title, panels


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard. name: of its file, and part of its URL."""

    name: str
    title: str
    description: str
    variables: Sequence[Variable]
    rows: Sequence[Row]

    def json(self) -> str:
        """The text of the dashboard's file."""
        return json.dumps(self._builder().build(), cls=JSONEncoder, indent=1) + "\n"

    def _builder(self) -> builders.Dashboard:
        made = (
            builders.Dashboard(f"Penstock / {self.title}")
            .uid(f"penstock-{self.name}")
            .description(self.description)
            .tags([TAG])
            .timezone("browser")
            .time("now-1h", "now")
            .refresh("30s")
            .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
            .variables(list(self.variables))
            .annotations(list(MARKS))
            .link(_other_boards())
        )
        number = 0
        for row in self.rows:
            number += 1
            made = made.with_row(builders.Row(row.title).id(number))
            for panel in row.panels:
                number += 1
                made = made.with_panel(panel.id(number))
        return made


def _other_boards() -> builders.DashboardLink:
    link = builders.DashboardLink("Penstock").type(dashboard.DashboardLinkType.DASHBOARDS)
    return link.tags([TAG]).as_dropdown(True).include_vars(True).keep_time(True)
