"""`penstock chart`: writes the Helm chart."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.chart.chart_files import chart_files
from penstock.cli.generated import write_or_check


def command(
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("charts/penstock"),
    check: Annotated[bool, typer.Option(help="Write nothing; fail if a file differs.")] = False,
) -> None:
    """Write the Helm chart, or check that it is up to date."""
    write_or_check(output, chart_files(), check=check)
