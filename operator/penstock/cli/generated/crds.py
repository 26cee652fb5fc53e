"""`penstock crds`: writes the CustomResourceDefinitions generated from the API models.

It also keeps their golden schemas, and refuses changes that can break users.
"""

from pathlib import Path
from typing import Annotated

import typer

from penstock.api.generation import compatibility, crdgen, golden
from penstock.cli.generated.write_or_check import write_or_check


def command(
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("crds"),
    check: Annotated[bool, typer.Option(help="Write nothing; fail if a file differs.")] = False,
) -> None:
    """Write the CustomResourceDefinitions, or check that they are up to date.

    Fails, and writes nothing, if a change of the schema can break users and has no entry in
    golden/compatibility.yaml.
    """
    _refuse_breaking_changes(output / golden.FOLDER)
    files = crdgen.files() | golden.files(crdgen.crds())
    write_or_check(output, files, check=check)


def _refuse_breaking_changes(folder: Path) -> None:
    """Exit with 1 if the generated schema breaks users of the golden one. folder: of golden files."""
    exceptions = folder / compatibility.EXCEPTIONS
    schemas = [path for path in sorted(folder.glob("*.yaml")) if path != exceptions]
    try:
        changes = compatibility.refused_changes(
            [golden.from_text(path.read_text()) for path in schemas],
            [golden.fields_of(crd) for crd in crdgen.crds()],
            compatibility.Exceptions.parse(exceptions.read_text() if exceptions.is_file() else ""),
        )
    except ValueError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from error
    for change in changes:
        typer.echo(change.message(), err=True)
    if changes:
        typer.echo(f"Changes of the API that can break users: {len(changes)}.", err=True)
        raise typer.Exit(1)
