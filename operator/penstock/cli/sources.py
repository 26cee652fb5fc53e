"""Whom the operator may ask for numbers: options of the commands that start or install it."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from penstock.clients.promql import Server

MetricsHosts = Annotated[
    list[str] | None,
    typer.Option(
        help="HOST or HOST:PORT of a Prometheus that metrics of canaries may be asked of."
    ),
]
PrometheusUrl = Annotated[
    str | None,
    typer.Option(help="A Prometheus that scrapes engines: asked for those that cannot be read."),
]
PrometheusTokenFile = Annotated[
    Path | None, typer.Option(help="Its bearer token, in the operator's pod.")
]
PrometheusCaFile = Annotated[
    Path | None, typer.Option(help="Who signs its certificate, in the operator's pod.")
]


def prometheus(url: str | None, token_file: Path | None, ca_file: Path | None) -> Server | None:
    """Raises BadParameter for what cannot work, and what would give a token away."""
    if url is None:
        if token_file or ca_file:
            raise typer.BadParameter("a token and a CA go with --prometheus-url")
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise typer.BadParameter("--prometheus-url must be http(s)://HOST[:PORT][/PATH], no user")
    if token_file and parts.scheme != "https":
        raise typer.BadParameter("--prometheus-token-file needs a --prometheus-url with https")
    return Server(url, token_file, ca_file)


def arguments(metrics_hosts: list[str] | None, server: Server | None) -> list[str]:
    """Of `penstock operator run`."""
    given = [f"--metrics-host={host}" for host in metrics_hosts or ()]
    if server is not None:
        given.append(f"--prometheus-url={server.url}")
        if server.token_file:
            given.append(f"--prometheus-token-file={server.token_file}")
        if server.ca_file:
            given.append(f"--prometheus-ca-file={server.ca_file}")
    return given
