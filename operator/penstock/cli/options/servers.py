"""Options of commands that run as a server."""

from typing import Annotated

import typer

HostOption = Annotated[str, typer.Option(help="Address to listen on.")]
# Its type differs: a gateway without batches has no token.
BATCH_TOKEN_FILE = typer.Option(
    help="File with the token that gateways and the batch server share, of 32 bytes or more."
)
