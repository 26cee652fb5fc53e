"""`penstock alerts`: writes the generated alert rules for Prometheus."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.generated import write_or_check
from penstock.observability.alerts import groups


def command(
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = Path(
        "charts/penstock/files"
    ),
    check: Annotated[bool, typer.Option(help="Write nothing; fail if a file differs.")] = False,
) -> None:
    """Write the alert rules for Prometheus, or check that they are up to date."""
    write_or_check(output, groups.files(), check=check)
