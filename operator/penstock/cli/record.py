"""`penstock record`: writes a service's scaling observations and decisions to a file for replay."""

import asyncio
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.namespace_options import Namespace, OperatorNamespace
from penstock.cli.output_file import require_writable
from penstock.clients.clock import monotonic
from penstock.clients.kube import connect
from penstock.clients.leader import recording
from penstock.core.formats.quantity import parse_duration_s
from penstock.errors import KubeError

MARGIN_S = 30.0  # added to the requested duration, for the first decision and slow connections

LEASE = "penstock-operator"


def command(
    service: Annotated[str, typer.Argument(help="Name of the InferenceService.")],
    namespace: Namespace,
    duration: Annotated[
        str, typer.Option("--for", help="Duration of the recording, such as 10m.")
    ] = "10m",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write.", callback=require_writable)
    ] = Path("recording.jsonl"),
    operator_namespace: OperatorNamespace = "penstock-system",
) -> None:
    """Record scaling decisions as JSON lines after a header, for `penstock replay`."""
    try:
        wanted_s = parse_duration_s(duration)
        name = f"{namespace}/{service}"
        decisions = asyncio.run(_write(operator_namespace, name, wanted_s, output))
    except (KubeError, ValueError, OSError) as error:
        typer.echo(f"penstock record: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(f"wrote {decisions} decisions on {service} to {output}")


async def _write(operator_namespace: str, name: str, wanted_s: float, output: Path) -> int:
    """Write the recording and return the number of decisions. Raises KubeError if it ends too early."""
    written, start_s = 0, monotonic()
    timeout_s = wanted_s + MARGIN_S
    async with (
        await connect(user_agent="penstock-record") as kube,
        aclosing(recording(kube, operator_namespace, LEASE, name, timeout_s=timeout_s)) as lines,
    ):
        with ExitStack() as files:
            file = None
            async for line in lines:
                # Opened at the first line: if the operator cannot be reached, an existing file is kept.
                file = file or files.enter_context(output.open("wb"))
                file.write(line + b"\n")
                written += 1
                if monotonic() - start_s >= wanted_s and written > 1:
                    return written - 1
    raise KubeError(f"the operator ended the recording after {max(0, written - 1)} decisions")
