"""`penstock rollout`, also as `kubectl penstock rollout`: look at a rollout, and have a say in it."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from penstock.adapters.clock import wall
from penstock.adapters.kube import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    INFERENCE_SERVICES,
    Kube,
    Object,
    connect,
    current_namespace,
)
from penstock.api.convert import SHAPING
from penstock.core import history
from penstock.core.history import Revision
from penstock.core.manifests.kept import TRIAL
from penstock.core.rollout import commands
from penstock.core.rollout.by_bin import Pair, by_bin
from penstock.core.rollout.commands import Action
from penstock.core.rollout.trial import from_record
from penstock.core.service import SERVICE_LABEL
from penstock.core.timestamps import parse_timestamp
from penstock.errors import KubeError, NotFound

app = typer.Typer(no_args_is_help=True)
console = Console(highlight=False)

MANAGER = "penstock-cli"
POLL_S = 1.0
CALM = ("Stable", "Rejected")

Service = Annotated[str, typer.Argument(help="An InferenceService.")]
Namespace = Annotated[
    str,
    typer.Option(
        "--namespace", "-n", default_factory=current_namespace, show_default="the context's",
        help="Its namespace.",
    ),
]  # fmt: skip
Watch = Annotated[
    bool,
    typer.Option(
        "--watch", "-w", help="Follow it to its end; exit 1 when it is another one than asked for."
    ),
]


class Refused(Exception):
    """What was asked for makes no sense as things stand; the text says why."""


@app.callback()
def _group() -> None:
    """A new revision on its way."""


@app.command()
def status(
    service: Service,
    namespace: Namespace,
    watch: Watch = False,
    by: Annotated[
        Literal["bin"] | None,
        typer.Option(help="The last canary's latencies, for prompts of each length."),
    ] = None,
) -> None:
    """Where it stands, who has the traffic, and what the tests of a canary hold."""
    if by == "bin":
        _run(lambda kube: _by_bin(kube, namespace, service))
    else:
        _run(lambda kube: _follow(kube, namespace, service, watch=watch))


@app.command("history")
def show_history(service: Service, namespace: Namespace) -> None:
    """The revisions that can be gone back to."""
    _run(lambda kube: _history(kube, namespace, service))


@app.command()
def promote(service: Service, namespace: Namespace, watch: Watch = False) -> None:
    """Let a canary take over now, whatever its tests hold."""
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
        str | None, typer.Option(help="A revision of `history`; the one before the last if absent.")
    ] = None,
    watch: Watch = False,
) -> None:
    """Set the spec back to an earlier revision. Scaling, objectives and rollout settings stay."""
    _run(lambda kube: _undo(kube, namespace, service, to, watch=watch))


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
        raise typer.Exit(1) from error


async def _follow(
    kube: Kube, namespace: str, service: str, *, watch: bool, good: str = "Stable"
) -> bool:
    """Print it, and with `watch` again at each change until it has ended. good: the end to hope for."""
    shown: list[object] = []
    evidence: list[Object] = []
    gates: list[Object] = []
    had_ended = False
    while True:
        body = await kube.get(INFERENCE_SERVICES, namespace, service)
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


def _has_ended(body: Object) -> bool:
    """As far as the spec and the last command are known to the operator."""
    said = body.get("status", {})
    rollout = said.get("rollout") or {}
    given = body["metadata"].get("annotations", {}).get(commands.ANNOTATION)
    is_read = commands.read(given) is None or rollout.get("command") == given
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
        f"[bold]{service}[/]: {under_way}revision {revision}: "
        f"[bold]{rollout['phase']}[/] for {age_s:.0f} s: {rollout['reason']}"
    )
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
            _percent(each["effect"] if each["canarySamples"] else None),
            _percent(each.get("low")),
            _percent(each.get("high")),
            f"{each['canarySamples']:,} / {each['controlSamples']:,}",
            f"{each['eValue']:,.2f}" if each["eValue"] < 1e6 else "over a million",
            "yes" if each["isWithin"] else "",
        )
    console.print(table)


async def _by_bin(kube: Kube, namespace: str, service: str) -> bool:
    """From what the judge keeps."""
    body = await kube.get(INFERENCE_SERVICES, namespace, service)
    try:
        kept = await kube.get(CONFIG_MAPS, namespace, TRIAL.name(service))
        trial = from_record(TRIAL.record_of(kept, body["metadata"]["uid"]))
    except NotFound:
        trial = None
    if trial is None:
        raise Refused(f"{service} had no canary that was judged")
    table = Table("prompt tokens", "TTFT", "control", "", "TPOT", "control", "", "requests")
    for each in by_bin(trial.canary, trial.control):
        upper = "" if each.high_tokens is None else f" to {each.high_tokens:,}"
        table.add_row(
            f"{each.low_tokens:,}{upper}", *_pair(each.ttft), *_pair(each.tpot),
            f"{each.ttft.canary_n:,} / {each.ttft.control_n:,}",
        )  # fmt: skip
    console.print(table)
    return True


def _pair(pair: Pair) -> tuple[str, str, str]:
    both = ["" if s is None else f"{1000 * s:,.1f} ms" for s in (pair.canary_s, pair.control_s)]
    return both[0], both[1], _percent(pair.effect)


def _print_gates(gates: list[Object]) -> None:
    if not gates:
        return
    table = Table("gate", "", "state", "")
    for gate in gates:
        table.add_row(gate["name"], gate["kind"], gate["state"], gate["message"])
    console.print(table)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.1f} %"


async def _order(kube: Kube, namespace: str, service: str, action: Action, *, watch: bool) -> bool:
    body = await kube.get(INFERENCE_SERVICES, namespace, service)
    rollout = body.get("status", {}).get("rollout") or {}
    rejected = (rollout.get("rejected") or {}).get("revision")
    revision = rollout.get("revision") or (rejected if action == "resume" else None)
    can = commands.possible(rollout["strategy"], rollout["phase"]) if rollout else ()
    if revision is None or action not in can:
        phase = rollout.get("phase", "not known to an operator yet")
        rest = f"it can be told to {' or '.join(can)}" if can else "no rollout is under way"
        raise Refused(f"{service} is {phase} and cannot be told to {action}: {rest}")
    text = commands.write(action, revision, secrets.token_hex(4))
    patch = {
        "metadata": {
            "uid": body["metadata"]["uid"],
            "annotations": {commands.ANNOTATION: text},
        }
    }
    await kube.merge(INFERENCE_SERVICES, namespace, service, patch, manager=MANAGER)
    console.print(f"{service}: {action} of revision {revision} asked for")
    good = "Rejected" if action == "abort" else "Stable"
    return not watch or await _follow(kube, namespace, service, watch=True, good=good)


async def _revisions(kube: Kube, namespace: str, body: Object) -> list[Revision]:
    """Latest first."""
    name, uid = body["metadata"]["name"], body["metadata"]["uid"]
    found, _ = await kube.list(
        CONTROLLER_REVISIONS, namespace, labelSelector=f"{SERVICE_LABEL}={name}"
    )
    owned = [
        Revision.of(each)
        for each in found
        if any(owner["uid"] == uid for owner in each["metadata"].get("ownerReferences", []))
    ]
    return sorted(owned, key=lambda each: -each.number)


async def _history(kube: Kube, namespace: str, service: str) -> bool:
    body = await kube.get(INFERENCE_SERVICES, namespace, service)
    said = body.get("status", {})
    rollout = said.get("rollout") or {}
    names = {
        said.get("stableRevision"): "serves",
        rollout.get("revision"): "is rolled out",
        (rollout.get("rejected") or {}).get("revision"): "rejected",
    }
    table = Table("number", "revision", "", "what is other than before")
    entries = await _revisions(kube, namespace, body)
    for entry, earlier in zip(entries, [*entries[1:], None], strict=True):
        changed = history.changes(earlier.shape, entry.shape) if earlier else ()
        table.add_row(
            str(entry.number), entry.revision, names.get(entry.revision, ""), ", ".join(changed)
        )
    console.print(table)
    return True


async def _undo(kube: Kube, namespace: str, service: str, to: str | None, *, watch: bool) -> bool:
    body = await kube.get(INFERENCE_SERVICES, namespace, service)
    entries = await _revisions(kube, namespace, body)
    wanted = next((each for each in entries if each.revision == to), None)
    if to is None:
        wanted = entries[1] if len(entries) > 1 else None
    if wanted is None:
        raise Refused(f"{service} has no revision {to or 'before the last'} in its history")
    patch = history.way_back(body["spec"], wanted.shape, SHAPING)
    same = {"op": "test", "path": "/metadata/uid", "value": body["metadata"]["uid"]}
    await kube.patch(INFERENCE_SERVICES, namespace, service, [same, *patch], manager=MANAGER)
    console.print(f"{service}: the spec is that of revision {wanted.revision} again")
    return not watch or await _follow(kube, namespace, service, watch=True)
