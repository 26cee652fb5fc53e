"""`penstock rollout`, also as `kubectl penstock rollout`: shows and controls a rollout."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Literal

import typer

from penstock.cli.options.namespaces import Namespace
from penstock.cli.output.exit_status import exit_status
from penstock.cli.rollout import revisions
from penstock.cli.rollout.evidence import print_by_bin, print_by_tenant, read_trial
from penstock.cli.rollout.revisions import MANAGER
from penstock.cli.rollout.status import console, follow
from penstock.cli.rollout.target import Refused, RolloutTarget, parse_target
from penstock.clients.kubernetes.client import Kube, Object, connect
from penstock.core.observed.retry_advice import restart_command
from penstock.core.observed.rollout_phases import PHASES, Phase
from penstock.core.observed.stored_status import stored_status
from penstock.core.rollout import commands
from penstock.core.rollout.commands import Action
from penstock.errors import KubeError

app = typer.Typer(no_args_is_help=True)

Target = Annotated[
    str,
    typer.Argument(
        help="Name of the InferenceService or psvc/NAME, or lora/NAME for a LoraAdapter."
    ),
]
Watch = Annotated[
    bool,
    typer.Option(
        "--watch",
        "-w",
        help="Follow the rollout to its end; exit 1 if it is stalled or ends otherwise than requested, "
        "2 if the API server does not answer for a minute.",
    ),
]
WatchAbort = Annotated[
    bool,
    typer.Option(
        "--watch",
        "-w",
        help="Follow the rollout until the revision is rejected; exit 1 if it ends otherwise, 2 if the API "
        "server does not answer for a minute.",
    ),
]


@app.callback()
def _group() -> None:
    """Show and control the rollout of a new revision, or of a new version of a LoRA adapter."""


@app.command()
def status(
    target: Target,
    namespace: Namespace,
    watch: Watch = False,
    by: Annotated[
        Literal["bin", "tenant"] | None,
        typer.Option(help="Show the last canary's latencies by prompt length or by tenant."),
    ] = None,
) -> None:
    """Show the phase, the traffic split, and the evidence of a canary's tests."""
    if by is not None:
        _run(lambda kube: _evidence(kube, namespace, parse_target(target), by))
    else:
        _run(lambda kube: follow(kube, namespace, parse_target(target), watch=watch))


@app.command("history")
def show_history(target: Target, namespace: Namespace) -> None:
    """List the revisions that `undo` can restore."""
    _run(lambda kube: revisions.show(kube, namespace, parse_target(target)))


@app.command()
def promote(target: Target, namespace: Namespace, watch: Watch = False) -> None:
    """Promote a canary now, whatever its tests show, or switch a blue/green rollout."""
    _run(lambda kube: _send(kube, namespace, parse_target(target), "promote", watch=watch))


@app.command()
def abort(target: Target, namespace: Namespace, watch: WatchAbort = False) -> None:
    """Roll back and reject the revision."""
    _run(lambda kube: _send(kube, namespace, parse_target(target), "abort", watch=watch))


@app.command()
def pause(target: Target, namespace: Namespace, watch: Watch = False) -> None:
    """Freeze a canary's share of the traffic. Faults still cause a rollback."""
    _run(lambda kube: _send(kube, namespace, parse_target(target), "pause", watch=watch))


@app.command()
def resume(target: Target, namespace: Namespace, watch: Watch = False) -> None:
    """Continue after a pause, or retry a rejected revision."""
    _run(lambda kube: _send(kube, namespace, parse_target(target), "resume", watch=watch))


@app.command()
def undo(
    target: Target,
    namespace: Namespace,
    to: Annotated[
        str | None,
        typer.Option(help="Revision from `history`. Default: the previous stable revision."),
    ] = None,
    watch: Watch = False,
) -> None:
    """Restore the spec of an earlier revision, except scaling, objectives and rollout settings.

    Of a LoraAdapter: the URI of an earlier version.
    """
    _run(lambda kube: revisions.undo(kube, namespace, parse_target(target), to, watch=watch))


@app.command()
def restart(target: Target, namespace: Namespace, watch: Watch = False) -> None:
    """Replace all pods, by the service's rollout strategy, with pods of the operator's current image."""
    _run(lambda kube: revisions.restart(kube, namespace, parse_target(target), watch=watch))


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
        raise typer.Exit(exit_status(error)) from error


async def _evidence(
    kube: Kube, namespace: str, target: RolloutTarget, by: Literal["bin", "tenant"]
) -> bool:
    trial = await read_trial(kube, namespace, target)
    if trial is None:
        raise Refused(f"no canary of {target.text} has been judged")
    if by == "bin":
        print_by_bin(trial)
    elif trial.canary.tenants or trial.control.tenants:
        print_by_tenant(trial)
    else:
        raise Refused(
            f"no tenants were recorded: no Tenant of the cluster has sent requests to {target.text}"
        )
    return True


async def _send(
    kube: Kube, namespace: str, target: RolloutTarget, action: Action, *, watch: bool
) -> bool:
    """Write a command to the object. Raises Refused if the rollout's phase does not take it."""
    body = await kube.get(target.resource, namespace, target.name)
    rollout = stored_status(body).get("rollout") or {}
    rejected = (rollout.get("rejected") or {}).get("revision")
    revision = rollout.get("revision") or (rejected if action == "resume" else None)
    possible = commands.applicable_actions(rollout["strategy"], rollout["phase"]) if rollout else ()
    if revision is None or action not in possible:
        text = f"cannot {action} {target.text}, which is {_describe(rollout, possible)}"
        if action == "resume" and not target.is_adapter:
            text += f"; to have its model checked again, run: {restart_command(target.name)}"
        raise Refused(text)
    text = commands.format_command(action, revision, secrets.token_hex(4))
    patch = {
        "metadata": {
            "uid": body["metadata"]["uid"],
            "annotations": {commands.ANNOTATION: text},
        }
    }
    await kube.merge(target.resource, namespace, target.name, patch, manager=MANAGER)
    console.print(f"{target.text}: requested {action} of revision {revision}")
    is_abort = action == "abort"
    return not watch or await follow(kube, namespace, target, watch=True, is_abort=is_abort)


def _describe(rollout: Object, possible: Sequence[Action]) -> str:
    """The phase with its meaning, and the commands that it takes."""
    if not rollout:
        return "not reconciled yet"
    phase: Phase = rollout["phase"]
    if phase == "Stable":
        return "Stable: no rollout is in progress"
    hint = f"; possible now: {', '.join(possible)}" if possible else ""
    return f"{phase}: {PHASES[phase].meaning}{hint}"
