"""`penstock rollout`, also as `kubectl penstock rollout`: look at a rollout, and have a say in it."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

import typer

from penstock.cli import rollout_revisions as revisions
from penstock.cli.namespaces import Namespace
from penstock.cli.rollout_evidence import kept_trial, print_by_bin, print_by_tenant
from penstock.cli.rollout_revisions import MANAGER, Refused
from penstock.cli.rollout_status import console, follow
from penstock.clients.kube import Kube, connect
from penstock.clients.resources import INFERENCE_SERVICES
from penstock.core.rollout import commands
from penstock.core.rollout.commands import Action
from penstock.errors import Forbidden, KubeError, Transient

app = typer.Typer(no_args_is_help=True)

Service = Annotated[str, typer.Argument(help="An InferenceService.")]
Watch = Annotated[
    bool,
    typer.Option(
        "--watch",
        "-w",
        help="Follow it to its end; exit 1 when it is another one than asked for, "
        "2 when the API server does not answer for a minute.",
    ),
]


@app.callback()
def _group() -> None:
    """A new revision on its way."""


@app.command()
def status(
    service: Service,
    namespace: Namespace,
    watch: Watch = False,
    by: Annotated[
        Literal["bin", "tenant"] | None,
        typer.Option(
            help="The last canary's latencies, for prompts of each length or each tenant."
        ),
    ] = None,
) -> None:
    """Where it stands, who has the traffic, and what the tests of a canary hold."""
    if by is not None:
        _run(lambda kube: _evidence(kube, namespace, service, by))
    else:
        _run(lambda kube: follow(kube, namespace, service, watch=watch))


@app.command("history")
def show_history(service: Service, namespace: Namespace) -> None:
    """The revisions that can be gone back to."""
    _run(lambda kube: revisions.show(kube, namespace, service))


@app.command()
def promote(service: Service, namespace: Namespace, watch: Watch = False) -> None:
    """Let a canary take over now, whatever its tests hold, or a blue/green rollout switch."""
    _run(lambda kube: _order(kube, namespace, service, "promote", watch=watch))


@app.command()
def abort(service: Service, namespace: Namespace, watch: Watch = False) -> None:
    """Roll back, and do not try the revision again."""
    _run(lambda kube: _order(kube, namespace, service, "abort", watch=watch))


@app.command()
def pause(service: Service, namespace: Namespace, watch: Watch = False) -> None:
    """Hold a canary's share of the traffic. Faults still roll it back."""
    _run(lambda kube: _order(kube, namespace, service, "pause", watch=watch))


@app.command()
def resume(service: Service, namespace: Namespace, watch: Watch = False) -> None:
    """Go on after a pause, or try a rejected revision again."""
    _run(lambda kube: _order(kube, namespace, service, "resume", watch=watch))


@app.command()
def undo(
    service: Service,
    namespace: Namespace,
    to: Annotated[
        str | None,
        typer.Option(help="A revision of `history`; if absent, the last that was stable before."),
    ] = None,
    watch: Watch = False,
) -> None:
    """Set the spec back to an earlier revision. Scaling, objectives and rollout settings stay."""
    _run(lambda kube: revisions.undo(kube, namespace, service, to, watch=watch))


@app.command()
def restart(service: Service, namespace: Namespace, watch: Watch = False) -> None:
    """Replace the pods, by the service's own strategy, with those of the operator's current image."""
    _run(lambda kube: revisions.restart(kube, namespace, service, watch=watch))


def _run(work: Callable[[Kube], Awaitable[bool]]) -> None:
    """`work` says whether all is well."""

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
    trial = await kept_trial(kube, namespace, service)
    if trial is None:
        raise Refused(f"{service} had no canary that was judged")
    if by == "bin":
        print_by_bin(trial)
    elif trial.canary.tenants or trial.control.tenants:
        print_by_tenant(trial)
    else:
        raise Refused(f"no tenant is known: set spec.rollout.canary.tenantHeader of {service}")
    return True


async def _order(kube: Kube, namespace: str, service: str, action: Action, *, watch: bool) -> bool:
    body = await kube.get(INFERENCE_SERVICES, namespace, service)
    rollout = body.get("status", {}).get("rollout") or {}
    rejected = (rollout.get("rejected") or {}).get("revision")
    revision = rollout.get("revision") or (rejected if action == "resume" else None)
    can = commands.applicable_actions(rollout["strategy"], rollout["phase"]) if rollout else ()
    if revision is None or action not in can:
        phase = rollout.get("phase", "not known to an operator yet")
        rest = f"it can be told to {' or '.join(can)}" if can else "no rollout is under way"
        raise Refused(f"{service} is {phase} and cannot be told to {action}: {rest}")
    text = commands.format_command(action, revision, secrets.token_hex(4))
    patch = {
        "metadata": {
            "uid": body["metadata"]["uid"],
            "annotations": {commands.ANNOTATION: text},
        }
    }
    await kube.merge(INFERENCE_SERVICES, namespace, service, patch, manager=MANAGER)
    console.print(f"{service}: {action} of revision {revision} asked for")
    good = "Rejected" if action == "abort" else "Stable"
    return not watch or await follow(kube, namespace, service, watch=True, good=good)
