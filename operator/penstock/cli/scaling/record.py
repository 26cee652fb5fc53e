"""`penstock record`: writes a service's scaling observations and decisions to a file for replay."""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.chart.names import LEASE_NAME, NAMESPACE
from penstock.cli.options.namespaces import Namespace, OperatorNamespace
from penstock.cli.output.exit_status import exit_status
from penstock.cli.output.file import require_writable
from penstock.clients.kubernetes.client import connect
from penstock.clients.kubernetes.leader import recording
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES
from penstock.clients.machine.clock import monotonic
from penstock.core.formats.conditions import conditions_by_type
from penstock.core.formats.quantity import parse_duration_s
from penstock.errors import KubeError

MARGIN_S = 30.0  # added to the requested duration, for the first decision and slow connections


def command(
    service: Annotated[str, typer.Argument(help="Name of the InferenceService.")],
    namespace: Namespace,
    duration: Annotated[
        str, typer.Option("--for", help="Duration of the recording, such as 10m.")
    ] = "10m",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write.", callback=require_writable)
    ] = Path("recording.jsonl"),
    operator_namespace: OperatorNamespace = NAMESPACE,
) -> None:
    """Record scaling decisions as JSON lines after a header, for `penstock replay`."""
    try:
        wanted_s = parse_duration_s(duration)
        decisions = asyncio.run(_write(operator_namespace, namespace, service, wanted_s, output))
    except (KubeError, ValueError, OSError) as error:
        typer.echo(f"penstock record: {error}", err=True)
        raise typer.Exit(exit_status(error)) from error
    typer.echo(f"wrote {decisions} decisions on {service} to {output}")


def announce_wait(service: str, body: Mapping[str, Any]) -> None:
    """Print that the next scaling decision is awaited, and why it may not come.

    Raises KubeError if the operator makes no decision on the service before its spec is changed.
    """
    status = body.get("status", {})
    held = conditions_by_type(status)
    stalled, ready = held.get("Stalled", {}), held.get("Ready", {})
    if "scaling" not in status and stalled.get("status") == "True":
        raise KubeError(f"no decision is made on {service}: {stalled['message']}")
    state = "" if ready.get("status") == "True" else "; it is not ready"
    cause = f": {ready['message']}" if state and ready.get("message") else ""
    typer.echo(f"waiting for the operator's next decision on {service}{state}{cause}", err=True)


async def _write(
    operator_namespace: str, namespace: str, service: str, wanted_s: float, output: Path
) -> int:
    """Write the recording and return the number of decisions. Raises KubeError if it ends too early."""
    written, start_s = 0, monotonic()
    timeout_s = wanted_s + MARGIN_S
    name = f"{namespace}/{service}"
    async with await connect(user_agent="penstock-record") as kube:
        announce_wait(service, await kube.get(INFERENCE_SERVICES, namespace, service))
        stream = recording(kube, operator_namespace, LEASE_NAME, name, timeout_s=timeout_s)
        async with aclosing(stream) as lines:
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
