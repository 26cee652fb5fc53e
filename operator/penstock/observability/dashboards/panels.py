"""Panels with the settings that all dashboards share."""

import re
from collections.abc import Mapping

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.models import common, dashboard

Panel = timeseries.Panel | statetimeline.Panel | stat.Panel
# An expression, and the text of its series in the legend: by default the labels that it is grouped by.
Query = str | tuple[str, str]
_GROUPED_BY = re.compile(r" by \(([\w, ]+)\)")

DATASOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
HEIGHT = 8
# Legends of lines that others are compared with: they are dashed.
LIMITS = "/ (objective|target|minReplicas|maxReplicas|low|high)$/"
GREEN, YELLOW, RED, BLUE, GREY = "green", "yellow", "red", "blue", "#8e8e8e"


def series(title: str, description: str, unit: str, *queries: Query) -> timeseries.Panel:
    """Lines over time, from 0 upwards if all values are positive."""
    return (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .targets([_target(number, query) for number, query in enumerate(queries)])
        .height(HEIGHT)
        .span(8)
        .axis_soft_min(0)
        .line_width(1)
        .fill_opacity(8)
        .show_points(common.VisibilityMode.AUTO)
        .override_by_regexp(LIMITS, _dashed())
        .legend(_legend())
        .tooltip(_tooltip())
    )


def areas(title: str, description: str, unit: str, *queries: Query) -> timeseries.Panel:
    """Stacked areas over time: the parts of a sum."""
    stacking = common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A")
    return series(title, description, unit, *queries).stacking(stacking).fill_opacity(35)


def fractions(title: str, description: str, *queries: Query) -> timeseries.Panel:
    """Lines between 0 and 100 %."""
    return series(title, description, "percentunit", *queries).min(0).max(1)


def logarithmic(panel: timeseries.Panel) -> timeseries.Panel:
    """Give the panel a logarithmic axis."""
    scale = common_builders.ScaleDistributionConfig()
    return panel.scale_distribution(scale.type(common.ScaleDistribution.LOG).log(10))


def states(
    title: str, description: str, texts: Mapping[str, str], *queries: Query
) -> statetimeline.Panel:
    """States over time. texts: of the numbers 0, 1, … that the queries return, each with its color."""
    results = {
        str(number): dashboard.ValueMappingResult(text=text, color=color, index=number)
        for number, (text, color) in enumerate(texts.items())
    }
    return (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit("none")
        .mappings([dashboard.ValueMap(options=results)])
        .targets([_target(number, query) for number, query in enumerate(queries)])
        .height(HEIGHT)
        .span(24)
        .merge_values(True)
        .show_value(common.VisibilityMode.AUTO)
        .row_height(0.8)
        .fill_opacity(70)
        .line_width(0)
        .legend(_legend())
        .tooltip(_tooltip())
    )


def number(title: str, description: str, unit: str, *queries: Query) -> stat.Panel:
    """The value of each series at the end of the time shown, as a number.

    Such a query may look back over all of that time, which would take too long for every point of a line.
    """
    last = common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False)
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .targets([_target(number, query).instant() for number, query in enumerate(queries)])
        .height(HEIGHT)
        .span(8)
        .reduce_options(last)
        .graph_mode(common.BigValueGraphMode.NONE)
        .color_mode(common.BigValueColorMode.VALUE)
        .text_mode(common.BigValueTextMode.VALUE_AND_NAME)
    )


def _target(number: int, query: Query) -> prometheus.Dataquery:
    expression, legend = (query, _grouped_by(query)) if isinstance(query, str) else query
    made = prometheus.Dataquery().expr(expression).legend_format(legend).range()
    return made.ref_id(chr(ord("A") + number)).datasource(DATASOURCE)


def _grouped_by(expression: str) -> str:
    """The labels of the series, as a legend. `le` is a label of a histogram's buckets only."""
    found = _GROUPED_BY.search(expression)
    assert found is not None, expression
    return " ".join(f"{{{{{each}}}}}" for each in found[1].split(", ") if each != "le")


def _dashed() -> list[dashboard.DynamicConfigValue]:
    style = {"fill": "dash", "dash": [6, 6]}
    return [
        dashboard.DynamicConfigValue(id_val="custom.lineStyle", value=style),
        dashboard.DynamicConfigValue(id_val="custom.fillOpacity", value=0),
    ]


def _legend() -> common_builders.VizLegendOptions:
    legend = common_builders.VizLegendOptions().show_legend(True)
    return legend.display_mode(common.LegendDisplayMode.LIST).placement(
        common.LegendPlacement.BOTTOM
    )


def _tooltip() -> common_builders.VizTooltipOptions:
    tooltip = common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
    return tooltip.sort(common.SortOrder.DESCENDING)
