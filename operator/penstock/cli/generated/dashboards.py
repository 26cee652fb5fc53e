"""`penstock dashboards`: writes the generated dashboards for Grafana."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.generated.write_or_check import write_or_check
from penstock.observability.dashboards.files import files


def command(
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("dashboards"),
    check: Annotated[bool, typer.Option(help="Write nothing; fail if a file differs.")] = False,
) -> None:
    """Write the dashboards for Grafana, or check that they are up to date."""
    write_or_check(output, files(), check=check)
