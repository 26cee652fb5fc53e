"""Prints the state of a rollout, once or at each change until it ends."""

import asyncio

import typer
from rich.table import Table
from rich.text import Text

from penstock.api.conversion.past_specs import accepted_spec
from penstock.cli.output.terminal import make_console
from penstock.cli.rollout.outcome import rollout_outcome
from penstock.cli.rollout.target import RolloutTarget
from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.machine.clock import monotonic, unix_time
from penstock.core.formats.conditions import conditions_by_type
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.observed.rollout_phases import (
    EVIDENCE_PHASES,
    PHASES_THAT_USERS_END,
    SETTLED_PHASES,
)
from penstock.core.observed.stored_status import stored_status
from penstock.core.rollout import commands
from penstock.errors import Forbidden, Transient

console = make_console()

POLL_S = 1.0
RETRY_FOR_S = 60.0  # a restart of the API server takes less


async def follow(
    kube: Kube, namespace: str, target: RolloutTarget, *, watch: bool, is_abort: bool = False
) -> bool:
    """Print the rollout; with `watch` again at each change until it ends.

    is_abort: whether a rejection is requested. Returns whether it ended as requested; without `watch` True.
    Raises KubeError.
    """
    shown: list[object] = []
    evidence: list[Object] = []
    gates: list[Object] = []
    outcome: bool | None = None
    while True:
        body = await _read(kube, namespace, target, retry_for_s=RETRY_FOR_S if watch else 0)
        status = body["status"]
        rollout = status.get("rollout") or {}
        current = [rollout, status.get("traffic"), _obstacle(status)]
        if current != shown:
            _print(target.text, body)
        if (new_evidence := rollout.get("evidence", [])) and new_evidence != evidence:
            _print_evidence(new_evidence, rollout["phase"])
        if (new_gates := rollout.get("gates", [])) and new_gates != gates:
            _print_gates(new_gates)
        shown, evidence, gates = current, new_evidence, new_gates
        if not watch:
            return True
        # Two reads must agree: after `undo` a rollout is Rejected for a moment.
        earlier, outcome = outcome, rollout_outcome(body, is_abort=is_abort)
        if outcome is not None and outcome == earlier:
            return outcome
        await asyncio.sleep(POLL_S)


async def _read(kube: Kube, namespace: str, target: RolloutTarget, *, retry_for_s: float) -> Object:
    """Read the object, with the current names in its status.

    Retries for this long while the API server is away. Raises KubeError.
    """
    deadline_s = monotonic() + retry_for_s
    has_failed = False
    while True:
        try:
            body = await kube.get(target.resource, namespace, target.name)
            return body | {"status": stored_status(body)}
        except Transient as error:
            if isinstance(error, Forbidden) or monotonic() >= deadline_s:
                raise
            if not has_failed:
                typer.echo(f"penstock rollout: {error}; trying again", err=True)
            has_failed = True
            await asyncio.sleep(error.delay_s or POLL_S)


def _obstacle(status: Object) -> str:
    """Text for users on what the rollout waits for, or why it is stalled; empty without either.

    The conditions say it after the reason for the phase.
    """
    reason = (status.get("rollout") or {}).get("message")
    by_type = conditions_by_type(status)
    stalled, reconciling = by_type.get("Stalled", {}), by_type.get("Reconciling", {})
    if stalled.get("status") == "True" and stalled["reason"] != "Rejected":
        return f"stalled: {stalled['message']}"
    if reconciling.get("reason") == "AwaitingPromotion":
        return ""  # the commands are printed
    message = str(reconciling.get("message", ""))
    waiting_for = message if reason is None else message.partition(f"{reason}; ")[2]
    return f"waiting: {waiting_for}" if waiting_for else ""


def _print(service: str, body: Object) -> None:
    """Print the phase, what it waits for, the last rejected revision, and the traffic split."""
    status = body["status"]
    rollout, obstacle = status.get("rollout"), _obstacle(status)
    if rollout is None:
        console.print(f"{service}: no revision has been rolled out yet")
        _print_line(obstacle)
        return
    rejected, stable = rollout.get("rejected"), status.get("stableRevision")
    if rejected and rollout["phase"] == "Rejected":
        serving = f"; revision {stable} serves" if stable else ""
        console.print(
            f"{service}: revision {rejected['revision']} was rejected at "
            f"{rejected['rejectionTime']}: {rejected['message']}{serving}"
        )
    else:
        _print_phase(service, body)
        if rejected:
            console.print(
                f"rejected {rejected['rejectionTime']}: {rejected['revision']}: "
                f"{rejected['message']}"
            )
    _print_line(obstacle)
    if actions := _awaited_actions(rollout):
        console.print(f"  waiting for: kubectl penstock rollout {' or '.join(actions)} {service}")
    for share in status.get("traffic", []):
        console.print(f"  {share['percent']:3d} % to revision {share['revision']}{_cohort(share)}")
    if mirror := status.get("mirror"):
        names = " and ".join(target["revision"] + _cohort(target) for target in mirror["targets"])
        console.print(f"  {mirror['percent']} % mirrored to {names}; their responses are discarded")


def _print_line(text: str) -> None:
    if text:
        console.print(f"  {text}")


def _cohort(target: Object) -> str:
    return " (control)" if target["cohort"] == "Control" else ""


def _print_phase(service: str, body: Object) -> None:
    """Print the phase with its revision, reason and age."""
    status = body["status"]
    rollout = status["rollout"]
    revision = rollout.get("revision") or status.get("stableRevision")
    age_s = max(0.0, unix_time() - parse_timestamp(rollout["phaseTransitionTime"]))
    console.print(
        Text.assemble(
            (service, "bold"), f": {_strategy(body)}revision {revision}: ", (rollout["phase"], "bold"),
            f" for {age_s:.0f} s: {rollout['message']}",
        )
    )  # fmt: skip


def _strategy(body: Object) -> str:
    """How the revision is rolled out; the first one of a service is started without a strategy."""
    rollout = body["status"]["rollout"]
    if rollout["phase"] in SETTLED_PHASES:
        return ""
    if body.get("kind") == "LoraAdapter":
        return f"{rollout['strategy']} of "
    spec, is_new = accepted_spec(body), not body["status"].get("stableRevision")
    is_first = is_new and spec is not None and rollout["strategy"] != spec.rollout.strategy
    return "first " if is_first else f"{rollout['strategy']} of "


def _awaited_actions(rollout: Object) -> list[str]:
    """The commands of a user that the rollout waits for; none in phases that end without one."""
    if rollout["phase"] not in PHASES_THAT_USERS_END:
        return []
    return list(commands.applicable_actions(rollout["strategy"], rollout["phase"]))


def _print_evidence(evidence: list[Object], phase: str) -> None:
    if not any(each["canarySamples"] for each in evidence):
        if phase in EVIDENCE_PHASES:
            console.print(
                "  the canary has not answered a request yet; time without requests does not count "
                "towards spec.rollout.canary.maxDuration"
            )
        return
    table = Table("metric", "effect", "at least", "at most", "requests", "e-value", "verdict")
    for each in evidence:
        table.add_row(
            each["metric"],
            percent(each["effect"] if each["canarySamples"] else None),
            percent(each.get("low")),
            percent(each.get("high")),
            f"{each['canarySamples']:,} / {each['controlSamples']:,}",
            f"{each['eValue']:,.2f}" if each["eValue"] < 1e6 else "> 1,000,000",
            each["verdict"],
        )
    console.print(table)


def _print_gates(gates: list[Object]) -> None:
    if not gates:
        return
    table = Table("gate", "kind", "state", "message")
    for gate in gates:
        table.add_row(gate["name"], gate["kind"], gate["state"], gate["message"])
    console.print(table)


def percent(value: float | None) -> str:
    """Format a signed fraction as a percentage; empty for None."""
    return "" if value is None else f"{100 * value:+.1f} %"
