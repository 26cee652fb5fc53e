"""`penstock crds`: writes the CustomResourceDefinitions generated from the API models."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.api import crdgen
from penstock.cli.generated import write_or_check


def command(
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("crds"),
    check: Annotated[bool, typer.Option(help="Write nothing; fail if a file differs.")] = False,
) -> None:
    """Write the CustomResourceDefinitions, or check that they are up to date."""
    write_or_check(output, crdgen.files(), check=check)
