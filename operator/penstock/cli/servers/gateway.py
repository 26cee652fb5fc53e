"""`penstock gateway`: runs the OpenAI-compatible gateway."""

import asyncio

import typer
import uvicorn

from penstock.cli.options.logs import LogFormatOption, LogLevelOption
from penstock.cli.servers import gateway_options as option
from penstock.clients.machine.logs import configure as configure_logs
from penstock.errors import KubeError
from penstock.gateway.server import serve
from penstock.gateway.settings import GatewaySettings

app = typer.Typer(no_args_is_help=True)

DEFAULT = GatewaySettings()


@app.callback()
def _group() -> None:
    """Run the OpenAI-compatible gateway."""


# The prefix is not PENSTOCK_GATEWAY because Kubernetes may set PENSTOCK_GATEWAY_PORT for a Service of
# that name.
@app.command(context_settings={"auto_envvar_prefix": "PENSTOCK_GW"})
def run(
    host: option.Host = DEFAULT.host,
    port: option.Port = DEFAULT.port,
    management_port: option.ManagementPort = DEFAULT.management_port,
    namespace: option.Namespace = DEFAULT.namespace,
    max_connections: option.MaxConnections = DEFAULT.max_connections,
    head_timeout_s: option.HeadTimeoutS = DEFAULT.head_timeout_s,
    request_timeout_s: option.RequestTimeoutS = DEFAULT.request_timeout_s,
    client_stall_timeout_s: option.ClientStallTimeoutS = DEFAULT.client_stall_timeout_s,
    connect_timeout_s: option.ConnectTimeoutS = DEFAULT.connect_timeout_s,
    first_byte_timeout_s: option.FirstByteTimeoutS = DEFAULT.first_byte_timeout_s,
    between_chunks_timeout_s: option.BetweenChunksTimeoutS = DEFAULT.between_chunks_timeout_s,
    total_timeout_s: option.TotalTimeoutS = DEFAULT.total_timeout_s,
    wait_for_endpoint_s: option.WaitForEndpointS = DEFAULT.wait_for_endpoint_s,
    max_waiting: option.MaxWaiting = DEFAULT.max_waiting,
    max_attempts: option.MaxAttempts = DEFAULT.max_attempts,
    retry_budget_fraction: option.RetryBudgetFraction = DEFAULT.retry_budget_fraction,
    min_retries: option.MinRetries = DEFAULT.min_retries,
    max_body_bytes: option.MaxBodyBytes = DEFAULT.max_body_bytes,
    max_held_body_bytes: option.MaxHeldBodyBytes = DEFAULT.max_held_body_bytes,
    max_header_bytes: option.MaxHeaderBytes = DEFAULT.max_header_bytes,
    max_buffered_answer_bytes: option.MaxBufferedAnswerBytes = DEFAULT.max_buffered_answer_bytes,
    max_held_answer_bytes: option.MaxHeldAnswerBytes = DEFAULT.max_held_answer_bytes,
    drain_delay_s: option.DrainDelayS = DEFAULT.drain_delay_s,
    drain_timeout_s: option.DrainTimeoutS = DEFAULT.drain_timeout_s,
    access_log: option.AccessLog = DEFAULT.access_log,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = "info",
) -> None:
    """Relay OpenAI requests to the engines of InferenceServices, until SIGTERM.

    Each option can also be set by its environment variable.
    """
    values = dict(locals())
    configure_logs(values.pop("log_format"), values.pop("log_level"))
    _serve(GatewaySettings(**values))


def _serve(settings: GatewaySettings) -> None:
    """Serve until SIGTERM. Exits with 1 if there are no credentials for a cluster."""
    loop_factory = uvicorn.Config("", log_config=None).get_loop_factory()
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(serve(settings))
    except KubeError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
