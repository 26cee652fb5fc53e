"""`penstock gateway`: runs the OpenAI-compatible gateway."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
import uvicorn

from penstock.cli.options.logs import LogFormatOption, LogLevelOption
from penstock.cli.options.servers import BATCH_TOKEN_FILE, HostOption
from penstock.clients.machine.logs import configure as configure_logs
from penstock.core.providers.external_urls import ExternalUrl, parse_external_url
from penstock.core.routing.forwarded_client import Network, parse_trusted_proxy
from penstock.core.routing.route_match import REGION_PATTERN
from penstock.errors import CertificateError, KubeError, TokenFileError
from penstock.gateway.http.cors import check_origin
from penstock.gateway.quotas.store import check_store_url
from penstock.gateway.server import serve
from penstock.gateway.settings import GatewaySettings

app = typer.Typer(no_args_is_help=True)

DEFAULT = GatewaySettings()
T = TypeVar("T")


def _checked(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _origin(text: str) -> str:
    return _checked(check_origin, text)


def _trusted_proxy(text: str) -> Network:
    return _checked(parse_trusted_proxy, text)


def _region(text: str) -> str:
    if text and not re.fullmatch(REGION_PATTERN, text):
        raise typer.BadParameter(
            f"{text!r} must have at most 63 letters, digits, '.', '_' and '-', and begin and end with a "
            "letter or digit"
        )
    return text


def _external_url(text: str) -> ExternalUrl:
    return _checked(parse_external_url, text)


def _quota_store(text: str) -> str:
    return _checked(check_store_url, text)


@app.callback()
def _group() -> None:
    """Run the OpenAI-compatible gateway."""


# The prefix is not PENSTOCK_GATEWAY because Kubernetes may set PENSTOCK_GATEWAY_PORT for a Service of
# that name.
@app.command(context_settings={"auto_envvar_prefix": "PENSTOCK_GW"})
def run(
    host: HostOption = DEFAULT.host,
    port: Annotated[int, typer.Option(help="Port for clients.")] = DEFAULT.port,
    management_port: Annotated[
        int, typer.Option(help="Port for probes, metrics and the operator's reads.")
    ] = DEFAULT.management_port,
    namespace: Annotated[
        str | None,
        typer.Option(help="Serve only services of this namespace. Default: all namespaces."),
    ] = DEFAULT.namespace,
    region: Annotated[
        str,
        typer.Option(
            help="Region of this gateway, such as eu-west, for the rules of ModelRoutes that name regions.",
            parser=_region,
        ),
    ] = DEFAULT.region,
    require_tenants: Annotated[
        bool,
        typer.Option(help="Let nobody in while the cluster has no Tenant. Default: everybody."),
    ] = DEFAULT.require_tenants,
    keys_namespace: Annotated[
        str,
        typer.Option(help="Namespace of the Secrets that have the hashes of tenants' API keys."),
    ] = DEFAULT.keys_namespace,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(
            help="PEM file of a certificate and those of its issuers, to serve clients by TLS. The gateway "
            "follows its renewal. Default: plain HTTP.",
        ),
    ] = DEFAULT.tls_certificate,
    tls_key: Annotated[
        Path | None, typer.Option(help="PEM file of the key of --tls-certificate.")
    ] = DEFAULT.tls_key,
    batch_url: Annotated[
        str,
        typer.Option(
            help="URL of the batch server. Default: the gateway has no files and batches.",
        ),
    ] = DEFAULT.batch_url,
    batch_token_file: Annotated[Path | None, BATCH_TOKEN_FILE] = DEFAULT.batch_token_file,
    cors_origin: Annotated[
        list[str],
        typer.Option(
            help="Origin of web pages that may use the gateway, such as https://chat.example.com; *: all "
            "(repeatable). Without it no page of another origin may.",
            parser=_origin,
        ),
    ] = [],  # noqa: B006 - Typer copies it
    allowed_external_url: Annotated[
        list[Any],
        typer.Option(
            metavar="URL",
            help="Beginning of the URLs that ExternalModels may have, such as https://api.example.com/v1 "
            "(repeatable). Without it no request is sent to any.",
            parser=_external_url,
        ),
    ] = [],  # noqa: B006 - Typer copies it
    trusted_proxy: Annotated[
        list[Any],
        typer.Option(
            metavar="CIDR",
            help="Network of proxies whose X-Forwarded-For names the client, and whose headers prove "
            "identities of Tenants, such as 10.0.0.0/8 (repeatable). Of other connections these headers are "
            "ignored.",
            parser=_trusted_proxy,
        ),
    ] = [],  # noqa: B006 - Typer copies it
    service_account_audience: Annotated[
        str, typer.Option(help="Audience that tokens of ServiceAccounts must be for.")
    ] = DEFAULT.service_account_audience,
    quota_store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Redis or Valkey in which gateways share limits of tenants and keep the ledger of usage, "
            "such as redis://quotas:6379/0; rediss: by TLS. Default: each gateway has an equal part of a "
            "limit, and there is no ledger.",
            parser=_quota_store,
        ),
    ] = DEFAULT.quota_store,
    quota_store_password_file: Annotated[
        Path | None, typer.Option(help="File with the password of --quota-store.")
    ] = DEFAULT.quota_store_password_file,
    usage_retention_days: Annotated[
        int, typer.Option(min=1, help="Days for which the ledger of usage is kept.")
    ] = DEFAULT.usage_retention_days,
    max_connections: Annotated[
        int, typer.Option(min=1, help="Maximum number of open client connections.")
    ] = DEFAULT.max_connections,
    head_timeout_s: Annotated[
        float, typer.Option(min=0.01, help="Timeout for receiving a request's headers, in seconds.")
    ] = DEFAULT.head_timeout_s,
    request_timeout_s: Annotated[
        float, typer.Option(min=0.01, help="Timeout for receiving a request's body, in seconds.")
    ] = DEFAULT.request_timeout_s,
    client_stall_timeout_s: Annotated[
        float,
        typer.Option(
            min=0.01,
            help="Timeout for a client to take each 16 KiB of its answer, in seconds.",
        ),
    ] = DEFAULT.client_stall_timeout_s,
    connect_timeout_s: Annotated[
        float, typer.Option(min=0.01, help="Timeout for connecting to an engine, in seconds.")
    ] = DEFAULT.connect_timeout_s,
    first_byte_timeout_s: Annotated[
        float,
        typer.Option(
            min=0.01, help="Timeout for the first byte of an engine's answer, in seconds."
        ),
    ] = DEFAULT.first_byte_timeout_s,
    between_chunks_timeout_s: Annotated[
        float, typer.Option(min=0.01, help="Timeout between two chunks of a stream, in seconds.")
    ] = DEFAULT.between_chunks_timeout_s,
    total_timeout_s: Annotated[
        float, typer.Option(min=0.01, help="Timeout for a whole request, in seconds.")
    ] = DEFAULT.total_timeout_s,
    wait_for_endpoint_s: Annotated[
        float,
        typer.Option(min=0, help="Maximum time that a request waits for an engine, in seconds."),
    ] = DEFAULT.wait_for_endpoint_s,
    max_waiting: Annotated[
        int, typer.Option(min=0, help="Maximum number of waiting requests per service.")
    ] = DEFAULT.max_waiting,
    hold_s: Annotated[
        float,
        typer.Option(
            min=0,
            help="Maximum time that a request for a service at zero waits for its first engine, in seconds.",
        ),
    ] = DEFAULT.hold_s,
    hold_comment_interval_s: Annotated[
        float,
        typer.Option(
            min=0.01,
            help="Time between two comments that keep such a request's stream alive, in seconds.",
        ),
    ] = DEFAULT.hold_comment_interval_s,
    max_attempts: Annotated[
        int,
        typer.Option(
            min=1, help="Maximum number of times that an engine gets one request; 1: no retries."
        ),
    ] = DEFAULT.max_attempts,
    retry_budget_fraction: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Maximum fraction of a service's requests that are retries."
        ),
    ] = DEFAULT.retry_budget_fraction,
    min_retries: Annotated[
        int, typer.Option(min=1, help="Number of retries per service that are always allowed.")
    ] = DEFAULT.min_retries,
    max_body_bytes: Annotated[
        int, typer.Option(min=1, help="Maximum size of a request's body, in bytes.")
    ] = DEFAULT.max_body_bytes,
    max_held_body_bytes: Annotated[
        int,
        typer.Option(
            min=1, help="Maximum total size of the bodies of unanswered requests, in bytes."
        ),
    ] = DEFAULT.max_held_body_bytes,
    max_header_bytes: Annotated[
        int, typer.Option(min=1, help="Maximum size of a request's headers, in bytes.")
    ] = DEFAULT.max_header_bytes,
    max_buffered_answer_bytes: Annotated[
        int,
        typer.Option(
            min=0, help="Maximum size of an answer that is buffered for a retry, in bytes."
        ),
    ] = DEFAULT.max_buffered_answer_bytes,
    max_held_answer_bytes: Annotated[
        int,
        typer.Option(
            min=0,
            help="Maximum total size of buffered answers until they are sent, and of events of streams above "
            "64 KiB, in bytes. Further ones are passed on as they arrive.",
        ),
    ] = DEFAULT.max_held_answer_bytes,
    drain_delay_s: Annotated[
        float,
        typer.Option(
            min=0,
            help="Time after SIGTERM, in seconds, in which the unready gateway still serves.",
        ),
    ] = DEFAULT.drain_delay_s,
    drain_timeout_s: Annotated[
        float,
        typer.Option(
            min=0, help="Time for running requests to finish after --drain-delay-s, in seconds."
        ),
    ] = DEFAULT.drain_timeout_s,
    access_log: Annotated[
        bool, typer.Option(help="Log a line for each request, without its texts.")
    ] = DEFAULT.access_log,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = "info",
) -> None:
    """Relay OpenAI requests to the engines of InferenceServices, until SIGTERM.

    Each option can also be set by its environment variable.
    """
    values = dict(locals())
    if (tls_certificate is None) != (tls_key is None):
        missing = "--tls-key" if tls_key is None else "--tls-certificate"
        raise typer.BadParameter("TLS needs both files; set it too", param_hint=missing)
    if (batch_token_file is None) != (not batch_url):
        missing = "--batch-url" if not batch_url else "--batch-token-file"
        raise typer.BadParameter("batches need both options; set it too", param_hint=missing)
    configure_logs(values.pop("log_format"), values.pop("log_level"))
    lists: dict[str, Any] = {
        "cors_origins": tuple(values.pop("cors_origin")),
        "trusted_proxies": tuple(values.pop("trusted_proxy")),
        "allowed_external_urls": tuple(values.pop("allowed_external_url")),
    }
    _serve(GatewaySettings(**lists, **values))


def _serve(settings: GatewaySettings) -> None:
    """Serve until SIGTERM. Exits with 1 without credentials for a cluster, or a usable certificate."""
    loop_factory = uvicorn.Config("", log_config=None).get_loop_factory()
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(serve(settings))
    except (CertificateError, KubeError, TokenFileError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
