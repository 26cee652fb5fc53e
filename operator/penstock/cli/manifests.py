"""`penstock manifests`: what `kubectl apply` needs to install Penstock."""

from typing import Annotated

import typer
import yaml

from penstock.api.install import install_manifests


def command(
    image: Annotated[str, typer.Option(help="The image that holds penstock and penstock-engine.")],
    gateway_port: Annotated[int, typer.Option(help="The gateway's port.")] = 8080,
    replicas: Annotated[int, typer.Option(help="Of the operator and of the gateway.")] = 2,
    metrics_host: Annotated[
        list[str] | None,
        typer.Option(
            help="HOST or HOST:PORT of a Prometheus that metrics of canaries may be asked of."
        ),
    ] = None,
) -> None:
    manifests = install_manifests(
        image=image,
        gateway_port=gateway_port,
        host_network=False,
        replicas=replicas,
        metrics_hosts=metrics_host or (),
    )
    typer.echo(yaml.safe_dump_all(manifests, sort_keys=False), nl=False)
