"""How a rollout stands, as a person reads it."""

import asyncio

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.clients.clock import monotonic, wall
from penstock.clients.kube import Kube, Object
from penstock.clients.resources import INFERENCE_SERVICES
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.rollout import commands
from penstock.errors import Forbidden, Transient

# Markup is off: reasons and messages may hold brackets.
console = Console(highlight=False, markup=False)

POLL_S = 1.0
# How long a watch retries while the API server does not answer; its restart takes less.
RETRY_FOR_S = 60.0
CALM = ("Stable", "Rejected")


async def follow(
    kube: Kube, namespace: str, service: str, *, watch: bool, good: str = "Stable"
) -> bool:
    """Print it, and with `watch` again at each change until it has ended. good: the end to hope for."""
    shown: list[object] = []
    evidence: list[Object] = []
    gates: list[Object] = []
    had_ended = False
    while True:
        body = await _read(kube, namespace, service, retry_for_s=RETRY_FOR_S if watch else 0)
        said = body.get("status", {})
        rollout = said.get("rollout") or {}
        telling = [rollout, said.get("traffic"), _awaited(said)]
        if telling != shown:
            _print(service, said)
        if (found := rollout.get("evidence", [])) and found != evidence:
            _print_evidence(found)
        if (asked := rollout.get("gates", [])) and asked != gates:
            _print_gates(asked)
        shown, evidence, gates = telling, found, asked
        if not watch:
            return True
        # Seen twice: on the way back to the old spec a rollout is Rejected for a moment.
        has_ended = _has_ended(body)
        if has_ended and had_ended:
            return bool(rollout["phase"] == good)
        had_ended = has_ended
        await asyncio.sleep(POLL_S)


async def _read(kube: Kube, namespace: str, service: str, *, retry_for_s: float) -> Object:
    """Read the service, with retries while the API server does not answer. Raises KubeError."""
    deadline_s = monotonic() + retry_for_s
    has_failed = False
    while True:
        try:
            return await kube.get(INFERENCE_SERVICES, namespace, service)
        except Transient as error:
            if isinstance(error, Forbidden) or monotonic() >= deadline_s:
                raise
            if not has_failed:
                typer.echo(f"penstock rollout: {error}; trying again", err=True)
            has_failed = True
            await asyncio.sleep(error.delay_s or POLL_S)


def _has_ended(body: Object) -> bool:
    """Whether the rollout has ended and the operator knows the current spec and the last command."""
    said = body.get("status", {})
    rollout = said.get("rollout") or {}
    given = body["metadata"].get("annotations", {}).get(commands.ANNOTATION)
    is_read = commands.parse_command(given) is None or rollout.get("command") == given
    is_known = said.get("observedGeneration") == body["metadata"]["generation"]
    return is_known and is_read and rollout.get("phase") in CALM


def _awaited(said: Object) -> str:
    """What holds a rollout up, in words; empty where nothing is known to."""
    rollout = said.get("rollout") or {}
    by_type = {c["type"]: c["message"] for c in said.get("conditions", [])}
    if rollout.get("phase") in ("Starting", "Growing", "Replacing"):
        return str(by_type.get("Ready", ""))
    # Of routes: after the reason for the phase.
    _, _, awaited = str(by_type.get("RolledOut", "")).partition(f"{rollout.get('reason')}; ")
    return awaited


def _print(service: str, said: Object) -> None:
    rollout = said.get("rollout")
    if rollout is None:
        console.print(f"{service}: nothing was rolled out yet")
        return
    revision = rollout.get("revision") or said.get("stableRevision")
    age_s = max(0.0, wall() - parse_timestamp(rollout["since"]))
    under_way = "" if rollout["phase"] in CALM else f"{rollout['strategy']} of "
    console.print(
        Text.assemble(
            (service, "bold"), f": {under_way}revision {revision}: ", (rollout["phase"], "bold"),
            f" for {age_s:.0f} s: {rollout['reason']}",
        )
    )  # fmt: skip
    if awaited := _awaited(said):
        console.print(f"  waits: {awaited}")
    if rejected := rollout.get("rejected"):
        console.print(f"rejected {rejected['at']}: {rejected['revision']}: {rejected['reason']}")
    for share in said.get("traffic", []):
        cohort = f" ({share['cohort']})" if share.get("cohort") else ""
        console.print(f"  {share['weight']:3d} % to revision {share['revision']}{cohort}")
    if copies := said.get("copies"):
        names = " and ".join(" ".join(filter(None, side.values())) for side in copies["sides"])
        console.print(
            f"  copies of {100 * copies['share']:g} % to {names}; nobody sees the answers"
        )


def _print_evidence(found: list[Object]) -> None:
    if not any(each["canarySamples"] for each in found):
        if found:
            console.print("  the canary has answered nothing yet")
        return
    table = Table("metric", "effect", "at least", "at most", "requests", "odds against", "within")
    for each in found:
        table.add_row(
            each["metric"],
            percent(each["effect"] if each["canarySamples"] else None),
            percent(each.get("low")),
            percent(each.get("high")),
            f"{each['canarySamples']:,} / {each['controlSamples']:,}",
            f"{each['eValue']:,.2f}" if each["eValue"] < 1e6 else "over a million",
            "yes" if each["isWithin"] else "",
        )
    console.print(table)


def _print_gates(gates: list[Object]) -> None:
    if not gates:
        return
    table = Table("gate", "", "state", "")
    for gate in gates:
        table.add_row(gate["name"], gate["kind"], gate["state"], gate["message"])
    console.print(table)


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.1f} %"
