"""`penstock operator`: runs the operator."""

import asyncio
import json
import logging
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from penstock.chart.names import NAMESPACE
from penstock.cli.options.logs import LogFormatOption, LogLevelOption
from penstock.clients.machine.error_groups import innermost
from penstock.clients.machine.logs import configure as configure_logs
from penstock.clients.prometheus.promql import Server
from penstock.controller.app import run as run_operator
from penstock.controller.election.election import LeadershipLost
from penstock.controller.process.settings import Settings
from penstock.core.manifests.allowed_pods import PodLimits
from penstock.core.runtimes.pod_models import SOURCE_VARIABLES

logger = logging.getLogger(__name__)

LEADERSHIP_LOST = "this replica no longer leads, and ends to start again as a standby"

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
    ] = NAMESPACE,
    namespace: Annotated[
        str | None,
        typer.Option(help="Operate only services of this namespace. Default: all namespaces."),
    ] = None,
    gateway_tls: Annotated[
        bool,
        typer.Option(
            "--gateway-tls",
            help="The gateway serves TLS: status.url of services begins with https.",
        ),
    ] = False,
    metrics_host: Annotated[
        list[str] | None,
        typer.Option(
            help="HOST or HOST:PORT of a Prometheus that canaries' metric queries may use; may be repeated."
        ),
    ] = None,
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
    source_variable: Annotated[
        list[str] | None,
        typer.Option(
            help="Variable of all containers that fetch models, as NAME=VALUE, such as HF_ENDPOINT=URL for a "
            f"mirror of the hub. One of {', '.join(SOURCE_VARIABLES)}. A Secret of the service wins. May be "
            "repeated. Default: none."
        ),
    ] = None,
    node_cache_path: Annotated[
        str | None,
        typer.Option(
            help="Folder of each node with the cache of models that `penstock-engine node-cache` keeps "
            "there. Services may use it (spec.model.cache.type). Default: nodes have no cache."
        ),
    ] = None,
    engines_from: Annotated[
        str | None,
        typer.Option(
            help="Restrict connections to engines, by a NetworkPolicy in each namespace with services, to "
            "gateways, operators and these peers: a JSON list, as in a NetworkPolicy's `from`. Default: no "
            "such policies."
        ),
    ] = None,
    prometheus_url: Annotated[
        str | None,
        typer.Option(
            help="URL of a Prometheus that scrapes the engines, used when the operator cannot scrape them. "
            "Default: none."
        ),
    ] = None,
    prometheus_token_file: Annotated[
        Path | None,
        typer.Option(help="File with the bearer token of --prometheus-url, in the operator's pod."),
    ] = None,
    prometheus_ca_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the CA certificate of --prometheus-url, in the operator's pod."
        ),
    ] = None,
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
            None if node_cache_path is None else folder_of_nodes(node_cache_path),
        ),
        source_variables(source_variable or ()),
        None if engines_from is None else peers(engines_from),
        gateway_tls,
    )
    try:
        asyncio.run(run_operator(settings))
    except BaseExceptionGroup as group:
        _, others = group.split(LeadershipLost)
        if others is not None:
            raise
        logger.error("%s: %s", LEADERSHIP_LOST, innermost(group))
        raise typer.Exit(1) from None


def prometheus(url: str | None, token_file: Path | None, ca_file: Path | None) -> Server | None:
    """Build the server from its options.

    Raises BadParameter if they contradict each other, or if a token would be sent without TLS.
    """
    if url is None:
        if token_file or ca_file:
            raise typer.BadParameter(
                "--prometheus-token-file and --prometheus-ca-file need --prometheus-url"
            )
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise typer.BadParameter(
            "--prometheus-url must be http(s)://HOST[:PORT][/PATH], without a user name"
        )
    if token_file and parts.scheme != "https":
        raise typer.BadParameter("--prometheus-token-file needs a --prometheus-url with https")
    return Server(url, token_file, ca_file)


def source_variables(given: Iterable[str]) -> dict[str, str]:
    """Parse the option. Raises BadParameter for another variable, as credentials do not belong there."""
    pairs = [text.partition("=") for text in given]
    found = {name: value for name, _, value in pairs}
    for name, value in found.items():
        if name not in SOURCE_VARIABLES or not value:
            raise typer.BadParameter(
                f"--source-variable must be NAME=VALUE with one of {', '.join(SOURCE_VARIABLES)}, not "
                f"{name}; put credentials into the Secret that spec.model.secretRef of a service names"
            )
    return found


def folder_of_nodes(path: str) -> str:
    """Check --node-cache-path. Raises BadParameter for a relative path, the root, or one with '.' or '..'."""
    parts = path.split("/")
    if parts[0] or not any(parts) or not {"", ".", ".."}.isdisjoint(parts[1:]):
        raise typer.BadParameter(
            "--node-cache-path must be an absolute path without '.', '..' or a trailing slash, such as "
            f"/var/lib/penstock/models, not {path}"
        )
    return path


def peers(text: str) -> tuple[dict[str, Any], ...]:
    """Parse the option. Raises BadParameter if it is no list of objects."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise typer.BadParameter(f"--engines-from must be a JSON list of peers, not {text}")
    return tuple(found)
