"""Shows the revisions of a service, rolls back to one, or restarts its pods."""

from collections.abc import Awaitable, Callable

from rich.table import Table

from penstock.api.convert import SHAPING
from penstock.cli.rollout_status import console, follow
from penstock.clients.clock import wall
from penstock.clients.kube import Kube, Object
from penstock.clients.resources import CONTROLLER_REVISIONS, INFERENCE_SERVICES
from penstock.core.formats.timestamps import timestamp
from penstock.core.rollout import commands
from penstock.core.spec import history
from penstock.core.spec.history import Revision
from penstock.core.spec.service import SERVICE_LABEL
from penstock.errors import Conflict

MANAGER = "penstock-cli"
# Tries of a patch: the operator's status writes change the resource version meanwhile.
ATTEMPTS = 5


class Refused(Exception):
    """The command does not fit the service's state; the text says why."""


async def show(kube: Kube, namespace: str, service: str) -> bool:
    """Print the history as a table, latest first."""
    body = await kube.get(INFERENCE_SERVICES, namespace, service)
    status = body.get("status", {})
    rollout = status.get("rollout") or {}
    names = {
        status.get("stableRevision"): "serves",
        rollout.get("revision"): "is rolled out",
        (rollout.get("rejected") or {}).get("revision"): "rejected",
    }
    table = Table("number", "revision", "", "engine image", "what is other than before")
    entries = await _revisions(kube, namespace, body)
    for entry, earlier in zip(entries, [*entries[1:], None], strict=True):
        changed = history.changes(earlier.shape, entry.shape) if earlier else ()
        stands = names.get(entry.revision, "was stable" if entry.was_stable else "")
        image = entry.pods.image if entry.pods else ""
        table.add_row(str(entry.number), entry.revision, stands, image, ", ".join(changed))
    console.print(table)
    return True


async def undo(kube: Kube, namespace: str, service: str, to: str | None, *, watch: bool) -> bool:
    """Patch the spec back to an earlier revision. Returns whether its rollout succeeded."""

    async def steps(body: Object) -> tuple[list[Object], str]:
        wanted = _previous(body, await _revisions(kube, namespace, body), to)
        steps = history.rollback_patch(body["spec"], wanted.shape, SHAPING)
        return steps, f"the spec is that of revision {wanted.revision} again"

    await _patch(kube, namespace, service, steps)
    return not watch or await follow(kube, namespace, service, watch=True)


async def restart(kube: Kube, namespace: str, service: str, *, watch: bool) -> bool:
    """Patch the spec so that all pods are replaced. Returns whether the rollout succeeded."""

    async def steps(body: Object) -> tuple[list[Object], str]:
        _require_calm(body)
        strategy = body["spec"].get("rollout", {}).get("strategy", "Rolling")
        said = f"its pods will be replaced ({strategy}) by pods of the operator's current image"
        return history.restart_patch(body["spec"], timestamp(wall())), said

    await _patch(kube, namespace, service, steps)
    return not watch or await follow(kube, namespace, service, watch=True)


async def _patch(
    kube: Kube,
    namespace: str,
    service: str,
    steps: Callable[[Object], Awaitable[tuple[list[Object], str]]],
) -> None:
    """Patch the service, only in the version that `steps` was computed from. Raises Refused if it
    changes each time."""
    for _ in range(ATTEMPTS):
        body = await kube.get(INFERENCE_SERVICES, namespace, service)
        patch, said = await steps(body)
        metadata = body["metadata"]
        seen = [
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            # With a resource version the API server answers 409 if there is a later one.
            {
                "op": "replace",
                "path": "/metadata/resourceVersion",
                "value": metadata["resourceVersion"],
            },
        ]
        try:
            await kube.patch(INFERENCE_SERVICES, namespace, service, seen + patch, manager=MANAGER)
        except Conflict:
            continue
        console.print(f"{service}: {said}")
        return
    raise Refused(f"{service} changes all the time: nothing is done; try again")


def _require_calm(body: Object) -> None:
    """Raise Refused during a rollout, which a restart would abandon; but not before the first one's
    end."""
    status = body.get("status", {})
    rollout = status.get("rollout") or {}
    if rollout.get("revision") and status.get("stableRevision"):
        name = body["metadata"]["name"]
        possible = commands.applicable_actions(rollout["strategy"], rollout["phase"])
        ending = [word for word in possible if word in ("promote", "abort")]
        instead = f", or {' or '.join(ending)} it first" if ending else ""
        raise Refused(
            f"{name} is {rollout['phase']}: revision {rollout['revision']} is rolled out. Wait for "
            f"its end (kubectl penstock rollout status {name} --watch){instead}"
        )


def _previous(body: Object, entries: list[Revision], to: str | None) -> Revision:
    """The revision to go back to. Raises Refused."""
    name, status = body["metadata"]["name"], body.get("status", {})
    if to is not None:
        for entry in entries:
            if entry.revision == to:
                return entry
        known = ", ".join(entry.revision for entry in entries) or "none"
        raise Refused(f"{name} has no revision {to} in its history, which has: {known}")
    if status.get("observedGeneration") != body["metadata"]["generation"]:
        raise Refused(
            f"the operator has not read the last change of {name} yet: try again, or say --to REVISION"
        )
    rollout = status.get("rollout") or {}
    rejected = (rollout.get("rejected") or {}).get("revision")
    stable = status.get("stableRevision")
    current = rollout.get("revision") or rejected or stable
    wanted = history.previous(entries, current, serving=stable)
    if wanted is None:
        others = [entry.revision for entry in entries if entry.revision != current]
        known = f"say --to with one of {', '.join(others)}" if others else "there is no other"
        raise Refused(f"no other revision of {name} is known to have been stable: {known}")
    return wanted


async def _revisions(kube: Kube, namespace: str, body: Object) -> list[Revision]:
    """The service's history, latest first."""
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
