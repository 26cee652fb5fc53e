"""`penstock rollout`, also as `kubectl penstock rollout`: shows and controls a rollout."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

import typer

from penstock.cli import rollout_revisions as revisions
from penstock.cli.namespace_options import Namespace
from penstock.cli.rollout_evidence import print_by_bin, print_by_tenant, read_trial
from penstock.cli.rollout_revisions import MANAGER, Refused
from penstock.cli.rollout_status import console, follow
from penstock.clients.kube import Kube, connect
from penstock.clients.resources import INFERENCE_SERVICES
from penstock.core.observed.stored_status import stored_status
from penstock.core.rollout import commands
from penstock.core.rollout.commands import Action
from penstock.errors import Forbidden, KubeError, Transient

app = typer.Typer(no_args_is_help=True)

Service = Annotated[str, typer.Argument(help="Name of the InferenceService.")]
Watch = Annotated[
    bool,
    typer.Option(
        "--watch",
        "-w",
        help="Follow the rollout to its end; exit 1 if it ends otherwise than requested, "
        "2 if the API server does not answer for a minute.",
    ),
]


@app.callback()
def _group() -> None:
    """Show and control the rollout of a new revision."""


@app.command()
def status(
    service: Service,
    namespace: Namespace,
    watch: Watch = False,
    by: Annotated[
        Literal["bin", "tenant"] | None,
        typer.Option(help="Show the last canary's latencies by prompt length or by tenant."),
    ] = None,
) -> None:
    """Show the phase, the traffic split, and the evidence of a canary's tests."""
    if by is not None:
        _run(lambda kube: _evidence(kube, namespace, service, by))
    else:
        _run(lambda kube: follow(kube, namespace, service, watch=watch))


@app.command("history")
def show_history(service: Service, namespace: Namespace) -> None:
    """List the revisions that `undo` can restore."""
    _run(lambda kube: revisions.show(kube, namespace, service))


@app.command()
def promote(service: Service, namespace: Namespace, watch: Watch = False) -> None:
    """Promote a canary now, whatever its tests show, or switch a blue/green rollout."""
    _run(lambda kube: _send(kube, namespace, service, "promote", watch=watch))


@app.command()
def abort(service: Service, namespace: Namespace, watch: Watch = False) -> None:
    """Roll back and reject the revision."""
    _run(lambda kube: _send(kube, namespace, service, "abort", watch=watch))


@app.command()
def pause(service: Service, namespace: Namespace, watch: Watch = False) -> None:
    """Freeze a canary's share of the traffic. Faults still cause a rollback."""
    _run(lambda kube: _send(kube, namespace, service, "pause", watch=watch))


@app.command()
def resume(service: Service, namespace: Namespace, watch: Watch = False) -> None:
    """Continue after a pause, or retry a rejected revision."""
    _run(lambda kube: _send(kube, namespace, service, "resume", watch=watch))


@app.command()
def undo(
    service: Service,
    namespace: Namespace,
    to: Annotated[
        str | None,
        typer.Option(help="Revision from `history`. Default: the previous stable revision."),
    ] = None,
    watch: Watch = False,
) -> None:
    """Restore the spec of an earlier revision, except scaling, objectives and rollout settings."""
    _run(lambda kube: revisions.undo(kube, namespace, service, to, watch=watch))


@app.command()
def restart(service: Service, namespace: Namespace, watch: Watch = False) -> None:
    """Replace all pods, by the service's rollout strategy, with pods of the operator's current image."""
    _run(lambda kube: revisions.restart(kube, namespace, service, watch=watch))


def _run(work: Callable[[Kube], Awaitable[bool]]) -> None:
    """Run `work` with a connection. Exits 1 if it returns False or fails, 2 if the API server is away."""

    async def connected() -> bool:
        async with await connect(user_agent="penstock-rollout") as kube:
            return await work(kube)

    try:
        if not asyncio.run(connected()):
            raise typer.Exit(1)
    except (KubeError, Refused) as error:
        typer.echo(f"penstock rollout: {error}", err=True)
        is_unknown = isinstance(error, Transient) and not isinstance(error, Forbidden)
        raise typer.Exit(2 if is_unknown else 1) from error


async def _evidence(kube: Kube, namespace: str, service: str, by: Literal["bin", "tenant"]) -> bool:
    trial = await read_trial(kube, namespace, service)
    if trial is None:
        raise Refused(f"no canary of {service} has been judged")
    if by == "bin":
        print_by_bin(trial)
    elif trial.canary.tenants or trial.control.tenants:
        print_by_tenant(trial)
    else:
        raise Refused(
            f"no tenants were recorded: set spec.rollout.canary.tenantHeader of {service}"
        )
    return True


async def _send(kube: Kube, namespace: str, service: str, action: Action, *, watch: bool) -> bool:
    """Write a command to the service. Raises Refused if the rollout's phase does not take it."""
    body = await kube.get(INFERENCE_SERVICES, namespace, service)
    rollout = stored_status(body).get("rollout") or {}
    rejected = (rollout.get("rejected") or {}).get("revision")
    revision = rollout.get("revision") or (rejected if action == "resume" else None)
    possible = commands.applicable_actions(rollout["strategy"], rollout["phase"]) if rollout else ()
    if revision is None or action not in possible:
        phase = rollout.get("phase", "not reconciled yet")
        hint = f"possible now: {', '.join(possible)}" if possible else "no rollout is in progress"
        raise Refused(f"cannot {action} {service}, which is {phase}; {hint}")
    text = commands.format_command(action, revision, secrets.token_hex(4))
    patch = {
        "metadata": {
            "uid": body["metadata"]["uid"],
            "annotations": {commands.ANNOTATION: text},
        }
    }
    await kube.merge(INFERENCE_SERVICES, namespace, service, patch, manager=MANAGER)
    console.print(f"{service}: requested {action} of revision {revision}")
    expected = "Rejected" if action == "abort" else "Stable"
    return not watch or await follow(kube, namespace, service, watch=True, expected=expected)
