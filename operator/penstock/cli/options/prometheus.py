"""Options for Prometheus servers that the operator may query, of the commands that run or install it."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from penstock.clients.prometheus.promql import Server

MetricsHosts = Annotated[
    list[str] | None,
    typer.Option(
        help="HOST or HOST:PORT of a Prometheus that canaries' metric queries may use; may be repeated."
    ),
]
PrometheusUrl = Annotated[
    str | None,
    typer.Option(
        help="URL of a Prometheus that scrapes the engines, used when the operator cannot scrape them. "
        "Default: none."
    ),
]
PrometheusTokenFile = Annotated[
    Path | None,
    typer.Option(help="File with the bearer token of --prometheus-url, in the operator's pod."),
]
PrometheusCaFile = Annotated[
    Path | None,
    typer.Option(help="File with the CA certificate of --prometheus-url, in the operator's pod."),
]


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
