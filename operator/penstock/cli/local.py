"""`penstock local`: clusters on this machine."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from penstock.local import cluster as clusters
from penstock.local.gobuild import BuildFailed
from penstock.local.install import install

app = typer.Typer(no_args_is_help=True)
console = Console(highlight=False)

Name = Annotated[str, typer.Option(help="The cluster's name.")]


@app.command()
def up(
    name: Name = "default",
    bare: Annotated[bool, typer.Option(help="The cluster alone, without Penstock in it.")] = False,
    allocatable: Annotated[
        list[str] | None,
        typer.Option(help="An extended resource of the node, such as nvidia.com/gpu=8."),
    ] = None,
) -> None:
    """Start a cluster, and Penstock in it."""
    offered = dict(entry.split("=", 1) for entry in allocatable or [] if "=" in entry)
    try:
        with console.status("starting"):
            cluster = clusters.up(name, say=_say, allocatable=offered)
            if not bare:
                asyncio.run(install(cluster, say=_say))
    except (clusters.ClusterError, BuildFailed) as error:
        console.print(f"[red]{error}[/]")
        raise typer.Exit(1) from error
    console.print(f"cluster [bold]{name}[/] is up at {cluster.server}")
    console.print(f"export KUBECONFIG={cluster.kubeconfig}")
    if not bare:
        console.print(f"OpenAI-compatible URL: {cluster.gateway_url}/v1")


@app.command()
def down(
    name: Name = "default",
    everything: Annotated[bool, typer.Option("--all", help="Every local cluster.")] = False,
) -> None:
    """End a cluster and all its processes, and remove its files."""
    for each in [c.name for c in clusters.list_clusters()] if everything else [name]:
        clusters.down(each)
        console.print(f"cluster [bold]{each}[/] is down")


@app.command()
def status() -> None:
    """The clusters of this machine and what of them does not run."""
    table = Table("cluster", "state", "server", "kubeconfig")
    for cluster in clusters.list_clusters():
        dead = clusters.dead_components(cluster)
        state = f"[red]not running: {', '.join(dead)}[/]" if dead else "[green]up[/]"
        table.add_row(cluster.name, state, cluster.server, str(cluster.kubeconfig))
    console.print(table)


@app.command()
def logs(
    source: Annotated[str, typer.Argument(help="A component, or part of a pod's name.")],
    name: Name = "default",
) -> None:
    """Print the log of a component (etcd, apiserver, …, node-agent) or of a pod's containers."""
    try:
        cluster = clusters.get(name)
    except clusters.ClusterError as error:
        console.print(f"[red]{error}[/]")
        raise typer.Exit(1) from error
    files = _log_files(cluster, source)
    if not files:
        known = ", ".join(sorted(path.stem for path in cluster.logs.glob("*.log")))
        console.print(f"[red]No component or pod is called {source!r}.[/] Components: {known}")
        raise typer.Exit(1)
    for file in files:
        typer.echo(file.read_text(errors="replace"), nl=False)


def _log_files(cluster: clusters.Cluster, source: str) -> list[Path]:
    component = cluster.logs / f"{source}.log"
    if component.is_file():
        return [component]
    return [
        log
        for log in sorted((cluster.folder / "pods").glob("*/containers/*/log"))
        if source in (log.parents[2] / "name").read_text()
    ]


def _say(text: str) -> None:
    console.print(f"  {text}")
