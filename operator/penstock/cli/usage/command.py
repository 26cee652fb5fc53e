"""`penstock usage`, also as `kubectl penstock usage`: what tenants have used, and what it costs."""

import asyncio
import csv
import json
import sys
from collections.abc import Mapping
from contextlib import aclosing
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal

import typer
from rich import box
from rich.table import Column, Table

from penstock.api.conversion.prices import to_prices
from penstock.chart.names import GATEWAY, MANAGEMENT_PORT_NAME, NAMESPACE, selector
from penstock.cli.output.exit_status import exit_status
from penstock.cli.output.terminal import make_console
from penstock.cli.usage.report import Group, UsageSum, sum_usage
from penstock.clients.kubernetes.client import Kube, Object, connect
from penstock.clients.kubernetes.pod_stream import stream_pod
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES, PODS
from penstock.clients.machine.clock import unix_time
from penstock.clients.pods.usage_report import MAX_DAYS, PATH, UsageRow, parse
from penstock.core.spec.prices import Prices
from penstock.errors import KubeError

TIMEOUT_S = 30.0
# Answer of a gateway of a version that does not have the route.
NO_ROUTE = "Not Found"
EPOCH = date(1970, 1, 1)
HEADINGS = ("requests", "prompt_tokens", "cached_tokens", "output_tokens", "cost")


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text} is no day: give one such as 2026-11-30") from None


def command(
    tenant: Annotated[str | None, typer.Option(help="Show only this Tenant.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Show only this InferenceService: NAMESPACE/NAME.")
    ] = None,
    from_: Annotated[
        Any,
        typer.Option(
            "--from", help="First day, by UTC. Default: of this month.", parser=_day, metavar="DATE"
        ),
    ] = None,
    to: Annotated[
        Any, typer.Option(help="Last day, by UTC. Default: today.", parser=_day, metavar="DATE")
    ] = None,
    by: Annotated[Group, typer.Option(help="What to sum up.")] = "tenant",
    output: Annotated[
        Literal["table", "json", "csv"], typer.Option("--output", "-o", help="Format.")
    ] = "table",
    gateway_namespace: Annotated[str, typer.Option(help="Namespace of the gateway.")] = NAMESPACE,
) -> None:
    """Print what tenants have used, from the ledger of the gateways.

    The cost is that of tokens by the prices that services have now (spec.prices), in the platform's currency.
    """
    today = datetime.fromtimestamp(unix_time(), UTC).date()
    first, last = from_ or today.replace(day=1), to or today
    if model is not None and "/" not in model:
        message = f"{model} has no namespace: give NAMESPACE/NAME, such as default/{model}"
        raise typer.BadParameter(message, param_hint="--model")
    if last < first:
        raise typer.BadParameter(f"--to {last} is before --from {first}", param_hint="--to")
    try:
        rows, prices = asyncio.run(_read(gateway_namespace, first, last))
    except KubeError as error:
        typer.echo(f"penstock usage: {error}", err=True)
        raise typer.Exit(exit_status(error)) from error
    chosen = [
        each for each in rows if tenant in (None, each.tenant) and model in (None, each.service)
    ]
    if not chosen:
        limits = f"{f' of the tenant {tenant}' if tenant else ''}{f' for {model}' if model else ''}"
        typer.echo(f"the ledger has no usage{limits} from {first} to {last}", err=True)
    _print(sum_usage(chosen, prices, by), by, output)


async def _read(
    namespace: str, first: date, last: date
) -> tuple[list[UsageRow], Mapping[str, Prices]]:
    """Read the ledger of some days, and the prices of services. Raises KubeError."""
    rows: list[UsageRow] = []
    async with await connect(user_agent="penstock-usage") as kube:
        pod = await _gateway(kube, namespace)
        while first <= last:
            num_days = min(MAX_DAYS, (last - first).days + 1)
            rows += await read_report(kube, pod, first, num_days)
            first += timedelta(days=num_days)
        services, _ = await kube.list(INFERENCE_SERVICES)
    named = {
        f"{each['metadata']['namespace']}/{each['metadata']['name']}": to_prices(each)
        for each in services
    }
    return rows, named


async def _gateway(kube: Kube, namespace: str) -> Object:
    """A gateway's pod that runs. All of them read the same ledger."""
    labels = ",".join(f"{name}={value}" for name, value in selector(GATEWAY).items())
    pods, _ = await kube.list(PODS, namespace, labelSelector=labels)
    for pod in pods:
        if pod["status"].get("phase") == "Running" and pod["status"].get("podIP"):
            return pod
    raise KubeError(f"no gateway runs in the namespace {namespace}: set --gateway-namespace")


async def read_report(kube: Kube, pod: Object, first: date, num_days: int) -> list[UsageRow]:
    """Read the usage of some days from a gateway. Raises KubeError."""
    query = {"from_day": str((first - EPOCH).days), "days": str(num_days)}
    stream = stream_pod(kube, pod, MANAGEMENT_PORT_NAME, PATH, query=query, timeout_s=TIMEOUT_S)
    try:
        async with aclosing(stream) as found:
            text = b"\n".join([line async for line in found])
    except KubeError as error:
        if NO_ROUTE not in str(error):
            raise
        name = pod["metadata"]["name"]
        message = f"the gateway {name} has no route for usage: it has an older version, update it"
        raise KubeError(message) from error
    try:
        return list(parse(text))
    except ValueError as error:
        message = f"the gateway's answer cannot be read, perhaps as it has another version: {error}"
        raise KubeError(message) from error


def _print(sums: list[UsageSum], by: Group, output: str) -> None:
    rows = [
        (
            each.name,
            *(getattr(each.usage, name) for name in HEADINGS[:-1]),
            "" if each.cost is None else f"{each.cost:.4f}",
        )
        for each in sums
    ]
    if output == "json":
        objects = [dict(zip((by, *HEADINGS), row, strict=True)) for row in rows]
        typer.echo(json.dumps(objects, indent=2))
    elif output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([(by, *HEADINGS), *rows])
    else:
        columns = [Column(name.upper().replace("_", " "), justify="right") for name in HEADINGS]
        table = Table(Column(by.upper()), *columns, box=box.SIMPLE_HEAD)
        for row in rows:
            table.add_row(*map(str, row))
        make_console().print(table)
