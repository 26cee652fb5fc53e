"""`penstock gateway`: the OpenAI-compatible front door."""

import asyncio
import logging
from typing import Annotated

import typer
import uvicorn

from penstock.errors import KubeError
from penstock.gateway.server import serve
from penstock.gateway.settings import GatewaySettings

app = typer.Typer(no_args_is_help=True)

DEFAULT = GatewaySettings()


@app.callback()
def _group() -> None:
    """The OpenAI-compatible front door."""


# Not PENSTOCK_GATEWAY: Kubernetes may set PENSTOCK_GATEWAY_PORT for a Service of that name.
@app.command(context_settings={"auto_envvar_prefix": "PENSTOCK_GW"})
def run(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = DEFAULT.host,
    port: Annotated[int, typer.Option(help="The port to listen on.")] = DEFAULT.port,
    namespace: Annotated[
        str | None, typer.Option(help="Serve the services of this namespace only.")
    ] = DEFAULT.namespace,
    max_connections: Annotated[
        int, typer.Option(min=1, help="How many connections of clients may be open.")
    ] = DEFAULT.max_connections,
    head_timeout_s: Annotated[
        float, typer.Option(min=0.01, help="How long a client may take to send a request's head.")
    ] = DEFAULT.head_timeout_s,
    request_timeout_s: Annotated[
        float, typer.Option(min=0.01, help="How long a client may take to send a request's body.")
    ] = DEFAULT.request_timeout_s,
    client_stall_timeout_s: Annotated[
        float, typer.Option(min=0.01, help="How long a client may read nothing of its answer.")
    ] = DEFAULT.client_stall_timeout_s,
    connect_timeout_s: Annotated[
        float, typer.Option(min=0.01, help="How long connecting to an engine may take.")
    ] = DEFAULT.connect_timeout_s,
    first_byte_timeout_s: Annotated[
        float, typer.Option(min=0.01, help="How long an engine may take to begin a stream.")
    ] = DEFAULT.first_byte_timeout_s,
    between_chunks_timeout_s: Annotated[
        float, typer.Option(min=0.01, help="How long a stream may stand still.")
    ] = DEFAULT.between_chunks_timeout_s,
    total_timeout_s: Annotated[
        float, typer.Option(min=0.01, help="How long a request may take altogether.")
    ] = DEFAULT.total_timeout_s,
    wait_for_endpoint_s: Annotated[
        float, typer.Option(min=0, help="How long a request may wait for an engine.")
    ] = DEFAULT.wait_for_endpoint_s,
    max_waiting: Annotated[
        int, typer.Option(min=0, help="How many requests of a service may wait.")
    ] = DEFAULT.max_waiting,
    max_attempts: Annotated[
        int, typer.Option(min=1, help="How many engines one request may try.")
    ] = DEFAULT.max_attempts,
    retry_budget_fraction: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="The share of a service's requests that may be at a retry."
        ),
    ] = DEFAULT.retry_budget_fraction,
    min_retries: Annotated[
        int, typer.Option(min=1, help="How many of a service may always be at a retry.")
    ] = DEFAULT.min_retries,
    max_body_bytes: Annotated[
        int, typer.Option(min=1, help="The largest body of a request.")
    ] = DEFAULT.max_body_bytes,
    max_held_body_bytes: Annotated[
        int, typer.Option(min=1, help="The bodies of all requests without an answer, together.")
    ] = DEFAULT.max_held_body_bytes,
    max_header_bytes: Annotated[
        int, typer.Option(min=1, help="The largest headers of a request.")
    ] = DEFAULT.max_header_bytes,
    max_buffered_answer_bytes: Annotated[
        int, typer.Option(min=0, help="The largest whole answer that is held back for a retry.")
    ] = DEFAULT.max_buffered_answer_bytes,
    max_held_answer_bytes: Annotated[
        int, typer.Option(min=0, help="Total of all answers that are held back for a retry.")
    ] = DEFAULT.max_held_answer_bytes,
    drain_delay_s: Annotated[
        float, typer.Option(min=0, help="How long to serve on after SIGTERM, unready.")
    ] = DEFAULT.drain_delay_s,
    drain_timeout_s: Annotated[
        float, typer.Option(min=0, help="How long running requests may take to finish then.")
    ] = DEFAULT.drain_timeout_s,
) -> None:
    """Relay OpenAI requests to the engines of every InferenceService, until SIGTERM.

    Each option can be given by its environment variable instead.
    """
    settings = GatewaySettings(**locals())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        with asyncio.Runner(loop_factory=uvicorn.Config("").get_loop_factory()) as runner:
            runner.run(serve(settings))
    except KubeError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
