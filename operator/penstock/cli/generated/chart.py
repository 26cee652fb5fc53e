"""`penstock chart`: writes the Helm chart and the kustomize base."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.chart.rendering.chart_files import charts
from penstock.cli.generated.write_or_check import write_or_check


def command(
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("charts"),
    check: Annotated[bool, typer.Option(help="Write nothing; fail if a file differs.")] = False,
) -> None:
    """Write the Helm chart and the kustomize base, or check that they are up to date."""
    write_or_check(output, charts(), check=check)
