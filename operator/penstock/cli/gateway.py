"""`penstock gateway`: the front door."""

import asyncio
import logging
from typing import Annotated

import typer

from penstock.gateway.serve import serve
from penstock.gateway.settings import GatewaySettings

app = typer.Typer(no_args_is_help=True)
DEFAULT = GatewaySettings()


@app.callback()
def _group() -> None:
    """The front door."""


@app.command()
def run(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = DEFAULT.host,
    port: Annotated[int, typer.Option(help="The port to listen on.")] = DEFAULT.port,
    namespace: Annotated[str | None, typer.Option(help="Serve this namespace only.")] = None,
    connect_timeout_s: Annotated[float, typer.Option(min=0.01)] = DEFAULT.connect_timeout_s,
    first_byte_timeout_s: Annotated[float, typer.Option(min=0.01)] = DEFAULT.first_byte_timeout_s,
    between_chunks_timeout_s: Annotated[
        float, typer.Option(min=0.01)
    ] = DEFAULT.between_chunks_timeout_s,
    total_timeout_s: Annotated[float, typer.Option(min=0.01)] = DEFAULT.total_timeout_s,
    wait_for_endpoint_s: Annotated[
        float, typer.Option(min=0, help="How long a request waits for a ready engine.")
    ] = DEFAULT.wait_for_endpoint_s,
    drain_delay_s: Annotated[float, typer.Option(min=0)] = DEFAULT.drain_delay_s,
    drain_timeout_s: Annotated[float, typer.Option(min=0)] = DEFAULT.drain_timeout_s,
) -> None:
    """Relay OpenAI requests to the engines of every InferenceService."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    settings = GatewaySettings(
        host=host,
        port=port,
        namespace=namespace,
        connect_timeout_s=connect_timeout_s,
        first_byte_timeout_s=first_byte_timeout_s,
        between_chunks_timeout_s=between_chunks_timeout_s,
        total_timeout_s=total_timeout_s,
        wait_for_endpoint_s=wait_for_endpoint_s,
        drain_delay_s=drain_delay_s,
        drain_timeout_s=drain_timeout_s,
    )
    asyncio.run(serve(settings))
