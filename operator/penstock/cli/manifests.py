"""`penstock manifests`: prints the manifests that install Penstock."""

import re
from typing import Annotated

import typer
import yaml

from penstock.chart.install import install_manifests
from penstock.cli.prometheus_options import (
    MetricsHosts,
    PrometheusCaFile,
    PrometheusTokenFile,
    PrometheusUrl,
    arguments,
    prometheus,
)


def _image(reference: str) -> str:
    if not re.fullmatch(r"[\w][\w./:@-]*", reference, re.ASCII):
        raise typer.BadParameter(f"{reference!r} is no image reference such as HOST/penstock:TAG")
    return reference


def command(
    image: Annotated[
        str, typer.Option(help="Image with penstock and penstock-engine.", callback=_image)
    ],
    gateway_port: Annotated[int, typer.Option(help="Port of the gateway.")] = 8080,
    replicas: Annotated[
        int, typer.Option(help="Replicas of the operator and of the gateway, each.")
    ] = 2,
    metrics_host: MetricsHosts = None,
    prometheus_url: PrometheusUrl = None,
    prometheus_token_file: PrometheusTokenFile = None,
    prometheus_ca_file: PrometheusCaFile = None,
) -> None:
    """Print the manifests that install Penstock, for kubectl apply."""
    server = prometheus(prometheus_url, prometheus_token_file, prometheus_ca_file)
    manifests = install_manifests(
        image=image,
        gateway_port=gateway_port,
        host_network=False,
        replicas=replicas,
        operator_args=arguments(metrics_host, server),
    )
    typer.echo(yaml.safe_dump_all(manifests, sort_keys=False), nl=False)
