"""`penstock operator`: runs the operator."""

import asyncio
import logging
import os
import socket
from typing import Annotated

import typer

from penstock.cli.options.logs import LogFormatOption, LogLevelOption
from penstock.cli.options.network import EnginesFrom, peers
from penstock.cli.options.prometheus import (
    MetricsHosts,
    PrometheusCaFile,
    PrometheusTokenFile,
    PrometheusUrl,
    prometheus,
)
from penstock.clients.machine.logs import configure as configure_logs
from penstock.controller.app import run as run_operator
from penstock.controller.process.settings import Settings
from penstock.core.manifests.allowed_pods import PodLimits

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Run the operator."""


@app.command()
def run(
    engine_image: Annotated[str, typer.Option(help="Image of engine pods.")],
    host: Annotated[
        str, typer.Option(help="Address of the probe and metrics endpoints.")
    ] = "0.0.0.0",  # noqa: S104
    port: Annotated[int, typer.Option(help="Port of the probe and metrics endpoints.")] = 8081,
    lease_namespace: Annotated[
        str, typer.Option(help="Namespace of the leader's Lease and of the gateways.")
    ] = "penstock-system",
    namespace: Annotated[
        str | None,
        typer.Option(help="Operate only services of this namespace. Default: all namespaces."),
    ] = None,
    metrics_host: MetricsHosts = None,
    allow_unrestricted_templates: Annotated[
        bool,
        typer.Option(
            "--allow-unrestricted-templates",
            help="Allow any spec.template, also one whose pods have more rights than the restricted Pod "
            "Security Standard gives: a user who may create a service may then create any pod.",
        ),
    ] = False,
    allowed_host_path: Annotated[
        list[str] | None,
        typer.Option(
            help="Folder of the nodes below which file:// models may be. May be repeated. Default: none."
        ),
    ] = None,
    allowed_service_account: Annotated[
        list[str] | None,
        typer.Option(
            help="Service account that spec.template of services may name, as NAME (in any namespace) or "
            "NAMESPACE/NAME. Its token is not mounted. May be repeated. Default: none."
        ),
    ] = None,
    engines_from: EnginesFrom = None,
    prometheus_url: PrometheusUrl = None,
    prometheus_token_file: PrometheusTokenFile = None,
    prometheus_ca_file: PrometheusCaFile = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = "info",
) -> None:
    """Reconcile InferenceServices until SIGTERM; one replica leads, the others stand by."""
    configure_logs(log_format, log_level)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    identity = f"{os.environ.get('POD_NAME', socket.gethostname())}-{os.getpid()}"
    settings = Settings(
        identity,
        engine_image,
        lease_namespace,
        host,
        port,
        tuple(metrics_host or ()),
        prometheus(prometheus_url, prometheus_token_file, prometheus_ca_file),
        namespace,
        PodLimits(
            allow_unrestricted_templates,
            tuple(allowed_host_path or ()),
            tuple(allowed_service_account or ()),
        ),
        None if engines_from is None else peers(engines_from),
    )
    asyncio.run(run_operator(settings))
