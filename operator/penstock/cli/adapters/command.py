"""`penstock adapters`, also as `kubectl penstock adapters`: where LoRA adapters are, and why."""

import asyncio
import json
from collections.abc import Iterable
from typing import Annotated, Literal

import typer
from rich import box
from rich.table import Column, Table

from penstock.chart.names import LEASE_NAME, NAMESPACE
from penstock.cli.adapters.report import AdapterReport, adapter_report
from penstock.cli.options.namespaces import Namespace, OperatorNamespace
from penstock.cli.output.exit_status import exit_status
from penstock.cli.output.terminal import make_console
from penstock.clients.kubernetes.client import Kube, Object, connect
from penstock.clients.kubernetes.leader import placement
from penstock.clients.kubernetes.resources import LORA_ADAPTERS
from penstock.clients.machine.clock import unix_time
from penstock.core.adapters.placement_record import PlacementRecord
from penstock.core.adapters.pool import PoolStatus
from penstock.core.formats.conditions import find_condition
from penstock.core.formats.timestamps import timestamp
from penstock.errors import KubeError


def command(
    namespace: Namespace,
    name: Annotated[
        str | None, typer.Argument(help="Name of a LoraAdapter. Default: all of them.")
    ] = None,
    service: Annotated[
        str | None, typer.Option(help="Show only the adapters of this InferenceService.")
    ] = None,
    output: Annotated[
        Literal["table", "json"], typer.Option("--output", "-o", help="Format of the output.")
    ] = "table",
    operator_namespace: OperatorNamespace = NAMESPACE,
) -> None:
    """Print where LoRA adapters are, their demand, and why they have so many copies.

    Misses, requests and the reasons for the copies come from the operator; all else is in the status.
    """
    try:
        reports = asyncio.run(_read(operator_namespace, namespace, name, service))
    except KubeError as error:
        typer.echo(f"penstock adapters: {error}", err=True)
        raise typer.Exit(exit_status(error)) from error
    if output == "json":
        objects = [_as_object(each) for each in reports]
        typer.echo(json.dumps(objects if name is None else objects[0], indent=2))
    elif name is not None:
        _print_one(reports[0])
    elif reports:
        _print_all(reports)
    else:
        of_service = f" of {service}" if service else ""
        typer.echo(f"there are no LoraAdapters{of_service} in namespace {namespace}", err=True)


async def _read(
    operator_namespace: str, namespace: str, name: str | None, service: str | None
) -> list[AdapterReport]:
    """Read the adapters and the placements of their services. Raises KubeError."""
    async with await connect(user_agent="penstock-adapters") as kube:
        if name is not None:
            bodies = [await kube.get(LORA_ADAPTERS, namespace, name)]
        else:
            bodies, _ = await kube.list(LORA_ADAPTERS, namespace)
        bodies = [each for each in bodies if service in (None, _service_of(each))]
        if name is not None and not bodies:
            raise KubeError(f"{name} is no adapter of {service}")
        services = sorted({_serving_service(each) for each in bodies if not _is_refused(each)})
        placements = await asyncio.gather(
            *(_placement(kube, operator_namespace, f"{namespace}/{each}") for each in services)
        )
    by_service = dict(zip(services, placements, strict=True))
    return [adapter_report(each, by_service.get(_serving_service(each))) for each in bodies]


def _service_of(body: Object) -> str:
    return str(body["spec"]["serviceRef"]["name"])


def _is_refused(body: Object) -> bool:
    """Whether the status says why the service does not take the adapter, so that it has no placement."""
    return bool(find_condition(body.get("status"), "Accepted", "False"))


def _serving_service(body: Object) -> str:
    """Name of the InferenceService whose engines serve the adapter."""
    return PoolStatus.of(body.get("status") or {}).serving_service(_service_of(body))


async def _placement(kube: Kube, operator_namespace: str, service: str) -> PlacementRecord | None:
    """The placement of a service "namespace/name"; None, with a message, if it cannot be read."""
    try:
        return await placement(kube, operator_namespace, LEASE_NAME, service)
    except KubeError as error:
        typer.echo(f"without the placement of {service}: {error}", err=True)
        return None


def _print_all(reports: Iterable[AdapterReport]) -> None:
    """Print a table that fits into 80 columns; versions, pools and pods are in that of one adapter."""
    name, service = Column("name", no_wrap=True), Column("service", overflow="fold")
    last_used = Column("last used", max_width=4)
    columns = (name, service, "loaded", "req/s", "misses", last_used, "reason")
    table = Table(*columns, box=box.SIMPLE, pad_edge=False)
    for each in reports:
        table.add_row(
            each.name,
            each.service,
            f"{each.loaded}/{each.wanted}",
            f"{each.requests_per_s:g}",
            "" if each.counts is None else str(each.counts.misses),
            _age(each.last_used_s),
            each.reason,
        )
    make_console().print(table)


def _print_one(report: AdapterReport) -> None:
    console = make_console()
    size = f", rank {report.rank}" if report.rank else ""
    size += f", {report.size_bytes / 2**20:.1f} MiB" if report.size_bytes else ""
    console.print(f"{report.name}: {report.model_name} of {report.service}, {report.uri}")
    console.print(f"version {_versions(report)}{size}")
    if report.pool_message:
        console.print(f"{report.pool} pool: {report.pool_message}")
    state = "ready" if report.is_ready else "not ready"
    console.print(
        f"{state}, {report.loaded} of {report.wanted} wanted copies are loaded: {report.reason}"
    )
    console.print(_demand(report))
    pod = Column("pod", overflow="fold")
    table = Table(pod, "copy", "requests", "slots in use", "message")
    for each in report.pods:
        requests = "" if each.requests is None else str(each.requests)
        slots = "" if each.slots is None else f"{each.used_slots} of {each.slots}"
        table.add_row(each.pod, each.state or "none", requests, slots, each.message)
    make_console().print(table)


def _demand(report: AdapterReport) -> str:
    parts = [f"{report.requests_per_s:g} requests/s"]
    if (counts := report.counts) is not None:
        parts += [f"{counts.in_flight} in flight", f"{counts.waiting} waiting"]
        parts.append(f"{counts.misses} of {counts.arrivals} requests found no copy in memory")
    if report.last_used_s is not None:
        parts.append(f"last used {_age(report.last_used_s)} ago")
    return ", ".join(parts)


def _versions(report: AdapterReport) -> str:
    if len(report.versions) == 1:
        return next(iter(report.versions))
    return ", ".join(f"{revision} {percent} %" for revision, percent in report.versions.items())


def _age(at_s: float | None) -> str:
    """Time since then in its largest unit; empty for None."""
    if at_s is None:
        return ""
    age_s = max(0.0, unix_time() - at_s)
    for unit, seconds in (("d", 86400), ("h", 3600), ("m", 60)):
        if age_s >= 2 * seconds:
            return f"{age_s / seconds:.0f}{unit}"
    return f"{age_s:.0f}s"


def _as_object(report: AdapterReport) -> Object:
    """The report in JSON, with the field names of the status."""
    counts = report.counts
    last_used = None if report.last_used_s is None else timestamp(report.last_used_s)
    return {
        "name": report.name,
        "namespace": report.namespace,
        "service": report.service,
        "pool": report.pool,
        "dedicatedService": report.dedicated_service,
        "modelName": report.model_name,
        "uri": report.uri,
        "versions": [
            {"revision": revision, "percent": percent}
            for revision, percent in report.versions.items()
        ],
        "rank": report.rank,
        "sizeBytes": report.size_bytes,
        "loadedReplicas": report.loaded,
        "desiredReplicas": report.wanted,
        "pods": [
            {
                "podName": pod.pod,
                "state": pod.state or None,
                "requests": pod.requests,
                "usedSlots": pod.used_slots,
                "slots": pod.slots,
                "message": pod.message or None,
            }
            for pod in report.pods
        ],
        "requestsPerSecond": report.requests_per_s,
        "requests": counts and counts.arrivals,
        "misses": counts and counts.misses,
        "inFlight": counts and counts.in_flight,
        "waiting": counts and counts.waiting,
        "lastUsedTime": last_used,
        "ready": report.is_ready,
        "reason": report.reason,
    }
