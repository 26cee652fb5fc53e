"""`penstock demo`: shows scaling and a rollout on a local cluster."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.demo.errors import StoryFailed
from penstock.demo.kubectl import KubectlError
from penstock.demo.story import tell
from penstock.local.cluster import ClusterError
from penstock.local.gobuild import BuildFailed


def command(
    name: Annotated[
        str, typer.Option(help="Name of the cluster, which is removed at the end.")
    ] = "demo",
    root: Annotated[Path, typer.Option(help="Folder with docs/ and examples/.")] = Path(),
    picture: Annotated[Path, typer.Option(help="File for the plot.")] = Path("out/demo.png"),
) -> None:
    """Run the demo on a local cluster, then remove the cluster."""
    for folder in ("docs", "examples"):
        if not (root / folder).is_dir():
            typer.echo(
                f"The demo needs {folder}/ of a checkout of Penstock, which is not in {root.resolve()}: "
                "name the checkout with --root",
                err=True,
            )
            raise typer.Exit(2)
    try:
        tell(root.resolve(), name=name, picture=picture)
    except (ClusterError, BuildFailed, KubectlError, StoryFailed, TimeoutError) as error:
        typer.echo(f"The demo stopped: {error}", err=True)
        raise typer.Exit(1) from error
