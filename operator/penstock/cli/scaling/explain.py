"""`penstock explain`: why a service has the number of replicas that it has, and what would change it."""

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from typing import Annotated, Any

import typer
from rich.table import Table

from penstock.api.conversion.convert import InvalidService
from penstock.api.conversion.past_specs import parse_accepted_spec
from penstock.chart.names import LEASE_NAME, NAMESPACE
from penstock.cli.options.namespaces import Namespace, OperatorNamespace
from penstock.cli.output.exit_status import exit_status
from penstock.cli.output.terminal import make_console
from penstock.cli.scaling.record import MARGIN_S, announce_wait
from penstock.clients.kubernetes.client import Kube, connect
from penstock.clients.kubernetes.leader import recording
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES, PODS
from penstock.core.observed.start_phases import start_phases
from penstock.core.observed.stored_status import stored_status
from penstock.core.scaling.recording import AnyTick, Recording
from penstock.core.scaling.rule import Decision
from penstock.core.scaling.what_if import changes, with_settings
from penstock.core.scaling.zero_totals import describe
from penstock.core.spec.service import ROLE_LABEL, SERVE, SERVICE_LABEL, Object, ServiceSpec
from penstock.errors import Forbidden, KubeError

console = make_console()

MAX_STARTS = 5  # pods whose starts are printed
MIB, GIB = 1 << 20, 1 << 30

MISSING_RIGHTS = (
    "what would change the number is only known to the operator: see Users in docs/concepts/security.md "
    "for the rights that it takes to ask"
)


def command(
    service: Annotated[str, typer.Argument(help="Name of the InferenceService.")],
    namespace: Namespace,
    changed: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Setting to try instead of the real one, such as maxReplicas=8 or ttft=1s; may be repeated.",
        ),
    ] = None,
    operator_namespace: OperatorNamespace = NAMESPACE,
) -> None:
    """Print the scaling decision in the status, then the operator's next one and what would change it."""
    try:
        given = dict(_setting(text) for text in changed or [])
        body, tick, pods = asyncio.run(_read(operator_namespace, namespace, service))
        if tick is None:
            console.print("spec.replicas sets the number: spec.scaling.mode is External.")
            return
        then = with_settings(tick, given) if given else None
        _say_status(service, body)
        if then is not None:
            names = " ".join(f"{name}={value}" for name, value in given.items())
            console.print(f"\nWith {names}, and the present load:")
            _print_trail(then)
        else:
            _say_changes(tick)
            _say_totals(tick, _spec_of(service, body))
            _say_starts(pods)
    except (KubeError, ValueError) as error:
        typer.echo(f"penstock explain: {error}", err=True)
        raise typer.Exit(exit_status(error)) from error


async def _read(
    operator_namespace: str, namespace: str, service: str
) -> tuple[dict[str, Any], AnyTick | None, list[Object]]:
    """Read the service, its next decision, which is None in mode External, and its pods. Raises KubeError."""
    async with await connect(user_agent="penstock-explain") as kube:
        body = await kube.get(INFERENCE_SERVICES, namespace, service)
        if _spec_of(service, body).scaling.mode == "External":
            return body, None, []
        announce_wait(service, body)
        try:
            tick = await _next_decision(kube, operator_namespace, f"{namespace}/{service}")
        except Forbidden as error:
            _say_status(service, body)
            raise KubeError(f"{error}; {MISSING_RIGHTS}") from error
        body = await kube.get(INFERENCE_SERVICES, namespace, service)
        return body, tick, await _engine_pods(kube, namespace, service)


async def _engine_pods(kube: Kube, namespace: str, service: str) -> list[Object]:
    """The engine pods of a service; none if the user may not list pods."""
    selector = f"{SERVICE_LABEL}={service},{ROLE_LABEL}={SERVE}"
    try:
        return (await kube.list(PODS, namespace, labelSelector=selector))[0]
    except Forbidden:
        return []


def _spec_of(service: str, body: dict[str, Any]) -> ServiceSpec:
    """The spec by which the operator runs the service. Raises KubeError if there is none that it accepts."""
    try:
        return parse_accepted_spec(body)
    except InvalidService as error:
        raise KubeError(
            f"no decision is made on {service}, whose spec is refused: {error}"
        ) from error


async def _next_decision(kube: Kube, operator_namespace: str, name: str) -> AnyTick:
    """Read the operator's next decision on the service "namespace/name". Raises KubeError."""
    lines = recording(kube, operator_namespace, LEASE_NAME, name, timeout_s=MARGIN_S)
    async with aclosing(lines):
        text: list[str] = []
        async for line in lines:
            text.append(line.decode())
            if len(text) == 2:
                return next(tick for tick, _ in Recording.read(text).replay())
    raise KubeError("the operator has made no decision")


def _say_status(service: str, body: dict[str, Any]) -> None:
    scaling = stored_status(body).get("scaling")
    if scaling is None:
        console.print(f"No decision on {service} has been made yet.")
        return
    console.print(
        f"{service} should have {_replicas(scaling['desiredReplicas'])} since {scaling['lastScaleTime']}: "
        f"{scaling['message']}"
    )
    _table((e["step"], e["replicas"], e["note"]) for e in scaling.get("trail", []))


def _say_starts(pods: Iterable[Object]) -> None:
    """Print how long the phases of the last starts took; nothing if no pod is ready."""
    found = [phases for pod in pods if (phases := start_phases(pod)) is not None]
    if not found:
        return
    console.print("\nThe last engines that started, and where their time went:")
    table = Table("engine", "node", "volumes, images", "fetch of the model", "engine", "in all")
    for each in sorted(found, key=lambda phases: -phases.ready_at_s)[:MAX_STARTS]:
        fetch = f"{each.fetch_s:.0f} s"
        if each.downloaded_bytes:
            is_large = each.downloaded_bytes >= GIB
            unit, name = (GIB, "GiB") if is_large else (MIB, "MiB")
            fetch += f" ({each.downloaded_bytes / unit:.1f} {name})"
        times_s = (each.scheduling_s, each.preparing_s, each.loading_s, each.total_s)
        node, preparing, loading, total = (f"{time_s:.0f} s" for time_s in times_s)
        table.add_row(each.pod, node, preparing, fetch, loading, total)
    console.print(table)


def _replicas(count: int) -> str:
    return f"{count} {'replica' if count == 1 else 'replicas'}"


def _say_changes(tick: AnyTick) -> None:
    console.print("\nThe latest decision:")
    _print_trail(tick.decision)
    found = list(changes(tick))
    if not found:
        console.print(
            "None of the tried loads changes the number, nor does halving or doubling a single setting."
        )
        return
    console.print("What would change the number:")
    table = Table("with", "replicas", "because")
    for change in found:
        table.add_row(
            change.what,
            _with_mix(str(change.decision.desired), change.decision),
            change.decision.reason,
        )
    console.print(table)


def _say_totals(tick: AnyTick, spec: ServiceSpec) -> None:
    """Print what scale to zero has saved and cost since the operator leads, if the service may be at zero."""
    idle = tick.settings.bounds.idle
    if idle is None:
        return
    # A service that is never at zero keeps its cheapest replica.
    price = min((variant.price_per_hour for variant in spec.variants), default=None)
    for sentence in describe(idle.totals, price):
        console.print(sentence)


def _with_mix(text: str, decision: Decision) -> str:
    """A number of replicas in words, with the numbers by variant if there are variants."""
    parts = [f"{count} {variant}" for variant, count in decision.by_variant.items() if count]
    return f"{text} ({' + '.join(parts)})" if parts else text


def _print_trail(decision: Decision) -> None:
    number = _with_mix(_replicas(decision.desired), decision)
    console.print(f"{number}, {decision.code}: {decision.reason}")
    _table((entry.step, entry.replicas, entry.note) for entry in decision.trail)


def _table(rows: Iterable[tuple[str, int, str]]) -> None:
    table = Table("step", "replicas", "inputs")
    for step, replicas, note in rows:
        table.add_row(step, str(replicas), note)
    console.print(table)


def _setting(text: str) -> tuple[str, str]:
    name, is_given, value = text.partition("=")
    if not is_given:
        raise ValueError(f"--set {text!r} is not of the form name=value")
    return name.strip(), value.strip()
