"""`penstock batch`: runs the batch server."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from penstock.batch.server import BatchSettingsError, serve
from penstock.batch.settings import BatchSettings
from penstock.batch.store.object_store import LeadershipLost, StoreError
from penstock.cli.options.logs import LogFormatOption, LogLevelOption
from penstock.cli.options.servers import BATCH_TOKEN_FILE, HostOption
from penstock.clients.machine.logs import configure as configure_logs
from penstock.core.batches.records import MAX_FILE_BYTES
from penstock.errors import CertificateError, TokenFileError

app = typer.Typer(no_args_is_help=True)

DEFAULT = BatchSettings(gateway_url="", token_file=Path(), store="")


@app.callback()
def _group() -> None:
    """Run the server of OpenAI's API of files and batches."""


@app.command()
def run(
    gateway_url: Annotated[
        str, typer.Option(help="URL of the gateway that gets the lines of batches.")
    ],
    token_file: Annotated[Path, BATCH_TOKEN_FILE],
    store: Annotated[
        str,
        typer.Option(
            help="Where files and results are stored: a folder, or s3://BUCKET/PREFIX. A bucket's endpoint, "
            "region and credentials are in the usual variables, such as AWS_ENDPOINT_URL."
        ),
    ],
    gateway_ca_file: Annotated[
        Path | None,
        typer.Option(
            help="PEM file of the authorities of the gateway's certificate, for a URL with https. Default, "
            "or if there is no such file: those of the system."
        ),
    ] = DEFAULT.gateway_ca_file,
    host: HostOption = DEFAULT.host,
    port: Annotated[int, typer.Option(help="Port for gateways.")] = DEFAULT.port,
    management_port: Annotated[
        int, typer.Option(help="Port for probes and metrics.")
    ] = DEFAULT.management_port,
    max_file_bytes: Annotated[
        int, typer.Option(min=1, max=MAX_FILE_BYTES, help="Maximum size of a file, in bytes.")
    ] = DEFAULT.max_file_bytes,
    max_tenant_bytes: Annotated[
        int,
        typer.Option(min=1, help="Maximum total size of a tenant's files and results, in bytes."),
    ] = DEFAULT.max_tenant_bytes,
    max_tenant_files: Annotated[
        int, typer.Option(min=1, help="Maximum number of a tenant's files.")
    ] = DEFAULT.max_tenant_files,
    max_tenant_batches: Annotated[
        int,
        typer.Option(min=1, help="Maximum number of a tenant's batches, with those that ended."),
    ] = DEFAULT.max_tenant_batches,
    max_running_batches: Annotated[
        int, typer.Option(min=1, help="Maximum number of a tenant's batches that run.")
    ] = DEFAULT.max_running_batches,
    retention_s: Annotated[
        int,
        typer.Option(
            min=86_400, help="Time after which files and batches are deleted, in seconds."
        ),
    ] = DEFAULT.retention_s,
    max_lines: Annotated[
        int, typer.Option(min=1, help="Maximum number of lines at the gateway at a time.")
    ] = DEFAULT.max_lines,
    max_line_bytes: Annotated[
        int, typer.Option(min=1, help="Maximum size of a line, in bytes; as --max-body-bytes.")
    ] = DEFAULT.max_line_bytes,
    line_timeout_s: Annotated[
        float, typer.Option(min=1, help="Timeout of a line at the gateway, in seconds.")
    ] = DEFAULT.line_timeout_s,
    drain_timeout_s: Annotated[
        float,
        typer.Option(min=0, help="Time after SIGTERM for lines to be answered, in seconds."),
    ] = DEFAULT.drain_timeout_s,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = "info",
) -> None:
    """Store files and run batches until SIGTERM; one process leads, others wait."""
    values = dict(locals())
    configure_logs(values.pop("log_format"), values.pop("log_level"))
    try:
        asyncio.run(serve(BatchSettings(**values)))
    except (
        BatchSettingsError,
        CertificateError,
        LeadershipLost,
        StoreError,
        TokenFileError,
    ) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
