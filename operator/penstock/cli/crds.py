"""`penstock crds`: the CustomResourceDefinitions, from the models."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.api import crdgen
from penstock.cli.generated import write_or_check


def command(
    output: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("crds"),
    check: Annotated[bool, typer.Option(help="Write nothing; fail when a file differs.")] = False,
) -> None:
    write_or_check(output, crdgen.files(), check=check)
