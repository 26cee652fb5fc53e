"""`penstock manifests`: what `kubectl apply` needs to install Penstock."""

from typing import Annotated

import typer
import yaml

from penstock.api.install import install_manifests
from penstock.cli.sources import (
    MetricsHosts,
    PrometheusCaFile,
    PrometheusTokenFile,
    PrometheusUrl,
    arguments,
    prometheus,
)


def command(
    image: Annotated[str, typer.Option(help="The image that holds penstock and penstock-engine.")],
    gateway_port: Annotated[int, typer.Option(help="The gateway's port.")] = 8080,
    replicas: Annotated[int, typer.Option(help="Of the operator and of the gateway.")] = 2,
    metrics_host: MetricsHosts = None,
    prometheus_url: PrometheusUrl = None,
    prometheus_token_file: PrometheusTokenFile = None,
    prometheus_ca_file: PrometheusCaFile = None,
) -> None:
    server = prometheus(prometheus_url, prometheus_token_file, prometheus_ca_file)
    manifests = install_manifests(
        image=image,
        gateway_port=gateway_port,
        host_network=False,
        replicas=replicas,
        operator_args=arguments(metrics_host, server),
    )
    typer.echo(yaml.safe_dump_all(manifests, sort_keys=False), nl=False)
