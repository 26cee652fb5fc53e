"""Generated files that depend on other packages than their own are current."""

from pathlib import Path

from penstock.chart.chart_files import chart_files

CHART = Path(__file__).parents[2] / "charts" / "penstock"


def test_the_chart_has_the_current_crds_and_rules() -> None:
    """`make generate` writes them."""
    stale = [name for name, text in chart_files().items() if (CHART / name).read_text() != text]
    assert stale == []
