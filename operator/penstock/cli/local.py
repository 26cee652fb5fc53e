"""`penstock local`: starts, ends and inspects clusters on this machine."""

import asyncio
import contextlib
import shlex
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.output.terminal import make_console
from penstock.core.formats.quantity import parse_quantity
from penstock.errors import KubeError
from penstock.local import chat_model
from penstock.local import cluster as clusters
from penstock.local.binaries import ensure_binaries
from penstock.local.gobuild import BuildFailed
from penstock.local.hub.origin import origin_of_models
from penstock.local.install import install, install_models
from penstock.local.kubelet.addresses import MAX_NODES
from penstock.local.kubelet.nodes import load_built_images, load_images
from penstock.local.record import NodeKind

app = typer.Typer(no_args_is_help=True)
console = make_console()

Name = Annotated[str, typer.Option(help="Name of the cluster.")]


@app.command()
def up(
    name: Name = "default",
    bare: Annotated[bool, typer.Option(help="Start only the cluster, without Penstock.")] = False,
    allocatable: Annotated[
        list[str] | None,
        typer.Option(
            help="Extended resource of each node, such as nvidia.com/gpu=8; may be repeated."
        ),
    ] = None,
    node: Annotated[
        NodeKind | None,
        typer.Option(
            help="What runs the pods: `agent`, Penstock's node agent, as processes, or `kubelet`, as "
            "containers, which needs root and the images of `make images`. A new cluster gets the agent "
            "by default."
        ),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(help="Number of nodes with a kubelet.", min=1, max=MAX_NODES)
    ] = None,
    install_packages: Annotated[
        bool, typer.Option(help="Install packages of the distribution that a kubelet's node needs.")
    ] = False,
) -> None:
    """Start a cluster with Penstock and a small chat model, or restart its missing components.

    Without --bare, the claim `models` in namespace default holds SmolLM2-135M-Instruct, which is
    downloaded once. If pods cannot reach the Hugging Face hub, a mirror serves it to them.
    """
    offered = dict(_resource(entry) for entry in allocatable or [])
    with _exit_on_error(), console.status("starting"):
        cluster = clusters.up(
            name, say=_say, allocatable=offered, node=node, num_nodes=nodes,
            may_install=install_packages, serves_hub=not bare,
        )  # fmt: skip
        if not bare:
            if cluster.node == "kubelet":
                load_built_images(cluster, say=_say)
            asyncio.run(install(cluster, say=_say))
            asyncio.run(install_models(cluster, chat_model.models_folder(), say=_say))
            chat = _fetch_chat_model()
    console.print(f"cluster {name} is up at {cluster.server}")
    flag = "" if name == "default" else f" --name {name}"
    console.print(f'use it: eval "$(penstock local env{flag})"', soft_wrap=True)
    if not bare:
        console.print(
            f"folder of the claim pvc://models: {chat_model.models_folder()}", soft_wrap=True
        )
        console.print(origin_of_models(cluster, chat), soft_wrap=True)
        console.print(f"OpenAI-compatible URL: {cluster.gateway_url}/v1")


@app.command()
def load(
    archives: Annotated[
        list[Path],
        typer.Argument(
            help="Archives of images, as `podman save` or `docker save` writes them.",
            exists=True,
            dir_okay=False,
        ),
    ],
    name: Name = "default",
) -> None:
    """Load images into the nodes of a cluster with kubelets."""
    with _exit_on_error():
        cluster = clusters.get(name)
        if cluster.node == "agent":
            raise clusters.ClusterError(
                f"The node agent of cluster {name!r} runs programs of this machine, not images."
            )
        load_images(cluster, [path.resolve() for path in archives])


@app.command()
def down(
    name: Name = "default",
    everything: Annotated[bool, typer.Option("--all", help="Remove all local clusters.")] = False,
) -> None:
    """Stop a cluster's processes and remove its files."""
    if not everything:
        with _exit_on_error():
            existed = clusters.down(name)
        console.print(f"cluster {name} is down" if existed else f"there is no cluster {name}")
        return
    for each in clusters.list_clusters():
        with _exit_on_error():
            clusters.down(each.name)
        console.print(f"cluster {each.name} is down")
    if damaged := clusters.damaged_records():
        _print_errors(damaged)
        raise typer.Exit(1)


@app.command()
def status() -> None:
    """List the clusters of this machine, with components that do not run or answer."""
    table = Table("cluster", "state", "server", "kubeconfig")
    for cluster in clusters.list_clusters():
        faults = clusters.faults(cluster)
        state = Text(faults, "red") if faults else Text("up", "green")
        table.add_row(cluster.name, state, cluster.server, str(cluster.kubeconfig))
    console.print(table)
    _print_errors(clusters.damaged_records())


@app.command()
def env(name: Name = "default") -> None:
    """Print shell commands for using a cluster: eval "$(penstock local env)".

    They set KUBECONFIG, PENSTOCK_URL (the OpenAI-compatible URL) and, unless PATH has a recent enough
    kubectl, PATH.
    """
    with _exit_on_error():
        cluster = clusters.get(name)
        kubectl = ensure_binaries(lambda text: typer.echo(text, err=True))["kubectl"]
    typer.echo(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
    typer.echo(f"export PENSTOCK_URL={cluster.gateway_url}/v1")
    if shutil.which("kubectl") != str(kubectl):
        typer.echo(f'export PATH={shlex.quote(str(kubectl.parent))}:"$PATH"')


@app.command()
def logs(
    source: Annotated[str, typer.Argument(help="Name of a component, or part of a pod's name.")],
    name: Name = "default",
) -> None:
    """Print the log of a component (etcd, apiserver, …, node-agent) or of a pod's containers.

    Logs of pods on a kubelet: use `kubectl logs`.
    """
    with _exit_on_error():
        cluster = clusters.get(name)
    components = {path.stem: path for path in sorted(cluster.logs.glob("*.log"))}
    files = [components[source]] if source in components else _pod_logs(cluster, source)
    if not files:
        pods = ", ".join(sorted({_pod_name(log) for log in _pod_logs(cluster, "")}))
        other = (
            "Of pods: use `kubectl logs`"
            if cluster.node == "kubelet"
            else f"Pods: {pods or 'none'}"
        )
        known = f"Components: {', '.join(components)}. {other}"
        _print_errors([f"No component or pod is called {source!r}. {known}"])
        raise typer.Exit(1)
    for file in files:
        typer.echo(file.read_text(errors="replace"), nl=False)


def _fetch_chat_model() -> Path | None:
    """Download the chat model. A failure is only printed, as the cluster works without it."""
    try:
        return chat_model.ensure_chat_model(_say)
    except chat_model.ModelUnavailable as error:
        typer.secho(
            f"penstock local: {chat_model.NAME} could not be fetched: {error}. "
            f"Run this command again, or put a model into {chat_model.models_folder()} and name it in "
            "spec.model.uri.",
            err=True, fg="yellow",
        )  # fmt: skip
        return None


def _pod_logs(cluster: clusters.Cluster, source: str) -> list[Path]:
    """List the log files of containers whose pod's name contains `source`."""
    return [
        log
        for log in sorted((cluster.folder / "pods").glob("*/containers/*/log"))
        if source in _pod_name(log)
    ]


def _pod_name(log: Path) -> str:
    """Return the name of the pod that wrote a container's log."""
    return (log.parents[2] / "name").read_text().strip()


def _resource(text: str) -> tuple[str, str]:
    """Parse `nvidia.com/gpu=8` into name and amount. Raises BadParameter."""
    name, _, amount = text.partition("=")
    with contextlib.suppress(ValueError):
        if name and parse_quantity(amount) >= 0:
            return name, amount
    raise typer.BadParameter(
        f"--allocatable {text!r} is not of the form RESOURCE=AMOUNT, such as nvidia.com/gpu=8"
    )


@contextlib.contextmanager
def _exit_on_error() -> Iterator[None]:
    """Print an expected error of the block and exit with code 1."""
    try:
        yield
    except (clusters.ClusterError, BuildFailed, KubeError) as error:
        _print_errors([error])
        raise typer.Exit(1) from error


def _print_errors(errors: Iterable[object]) -> None:
    for error in errors:
        typer.secho(f"penstock local: {error}", err=True, fg="red")


def _say(text: str) -> None:
    console.print(f"  {text}")
