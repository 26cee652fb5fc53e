"""Generated files that depend on other packages than their own are current."""

from pathlib import Path

from penstock.chart.rendering.chart_files import charts

CHARTS = Path(__file__).parents[2] / "charts"


def test_the_chart_has_the_current_crds_and_rules() -> None:
    """`make generate` writes them."""
    stale = [name for name, text in charts().items() if (CHARTS / name).read_text() != text]
    assert stale == []
