"""Shows the revisions of a service or adapter, rolls back to one, or restarts the pods of a service."""

from collections.abc import Awaitable, Callable

from rich.table import Column, Table

from penstock.api.conversion.past_specs import accepted_spec, spec_of_revision
from penstock.cli.rollout.status import console, follow
from penstock.cli.rollout.target import Refused, RolloutTarget
from penstock.cli.rollout.versions import print_versions, undo_patch
from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import CONTROLLER_REVISIONS
from penstock.clients.machine.clock import unix_time
from penstock.core.adapters.dedicated import adapter_of
from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.accepted_spec import spec_valid, with_accepted_spec
from penstock.core.observed.stored_status import stored_status
from penstock.core.rollout import commands
from penstock.core.spec import history
from penstock.core.spec.changes import changed_fields
from penstock.core.spec.fields import RECORDED
from penstock.core.spec.history import Revision
from penstock.core.spec.service import SERVICE_LABEL
from penstock.errors import Conflict

MANAGER = "penstock-cli"
# Attempts of a patch: a status write of the operator between read and patch is a conflict.
MAX_ATTEMPTS = 5


async def show(kube: Kube, namespace: str, target: RolloutTarget) -> bool:
    """Print the history as a table, latest first."""
    body = await kube.get(target.resource, namespace, target.name)
    if target.is_adapter:
        print_versions(body)
    else:
        await _print_revisions(kube, namespace, body)
    return True


async def _print_revisions(kube: Kube, namespace: str, body: Object) -> None:
    status = stored_status(body)
    rollout = status.get("rollout") or {}
    states = {
        status.get("stableRevision"): "stable",
        rollout.get("revision"): "rolling out",
        (rollout.get("rejected") or {}).get("revision"): "rejected",
    }
    changes = Column("changes since the one before", overflow="fold")  # paths are never cut
    table = Table("number", "revision", "state", "engine image", changes)
    entries = await _revisions(kube, namespace, body)
    for entry, earlier in zip(entries, [*entries[1:], None], strict=True):
        changed = _changes(body, earlier, entry) if earlier else ()
        state = states.get(entry.revision, "was stable" if entry.was_stable else "never stable")
        image = entry.pods.image if entry.pods else ""
        table.add_row(str(entry.number), entry.revision, state, image, ", ".join(changed))
    console.print(table)


def _changes(body: Object, earlier: Revision, entry: Revision) -> tuple[str, ...]:
    """Paths of the fields that changed; of an unreadable record, all that are written differently."""
    before, after = (spec_of_revision(body, each.recorded_fields) for each in (earlier, entry))
    if before is None or after is None:
        return history.changed_paths(earlier.recorded_fields, entry.recorded_fields)
    return changed_fields(before, after)


async def undo(
    kube: Kube, namespace: str, target: RolloutTarget, to: str | None, *, watch: bool
) -> bool:
    """Patch the spec back to an earlier revision. Returns whether its rollout succeeded.

    Without `to`, a refused spec is replaced by the one that the service goes on with.
    """

    async def steps(body: Object) -> tuple[list[Object], str]:
        if target.is_adapter:
            return undo_patch(body, to)
        accepted = _spec_in_use(body) if to is None else None
        if accepted is not None:
            patch = {"op": "replace", "path": "/spec", "value": accepted}
            return [patch], "restored the last spec that the operator accepted"
        wanted = _previous(body, await _revisions(kube, namespace, body), to)
        steps = history.rollback_patch(body["spec"], wanted.recorded_fields, RECORDED)
        return steps, f"restored the spec of revision {wanted.revision}"

    await _patch(kube, namespace, target, steps)
    return not watch or await follow(kube, namespace, target, watch=True)


async def restart(kube: Kube, namespace: str, target: RolloutTarget, *, watch: bool) -> bool:
    """Patch the spec so that all pods are replaced. Returns whether the rollout succeeded."""
    if target.is_adapter:
        raise Refused(f"{target.text} has no pods of its own: restart its InferenceService")

    async def steps(body: Object) -> tuple[list[Object], str]:
        _require_no_rollout(body)
        spec = accepted_spec(body)
        how = "" if spec is None else f" ({spec.rollout.strategy})"
        message = f"its pods will be replaced{how} by pods of the operator's current image"
        return history.restart_patch(body["spec"], timestamp(unix_time())), message

    await _patch(kube, namespace, target, steps)
    return not watch or await follow(kube, namespace, target, watch=True)


def _require_own_spec(target: RolloutTarget, body: Object) -> None:
    """Raise Refused for a dedicated pool: the operator would undo a change of its spec."""
    if not target.is_adapter and (adapter := adapter_of(body)):
        service = (body["metadata"].get("labels") or {}).get(SERVICE_LABEL, "its service")
        raise Refused(
            f"{target.text} is the dedicated pool of lora/{adapter}, and has the spec of {service}: change "
            "that one"
        )


async def _patch(
    kube: Kube,
    namespace: str,
    target: RolloutTarget,
    steps: Callable[[Object], Awaitable[tuple[list[Object], str]]],
) -> None:
    """Apply the JSON patch that `steps` computes from the object, and print its message.

    Computes it again if the object changed meanwhile. Raises Refused after MAX_ATTEMPTS.
    """
    for _ in range(MAX_ATTEMPTS):
        body = await kube.get(target.resource, namespace, target.name)
        _require_own_spec(target, body)
        patch, message = await steps(body)
        metadata = body["metadata"]
        preconditions = [
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            # The API server answers 409 if this is not the current resource version.
            {
                "op": "replace",
                "path": "/metadata/resourceVersion",
                "value": metadata["resourceVersion"],
            },
        ]
        try:
            await kube.patch(
                target.resource, namespace, target.name, preconditions + patch, manager=MANAGER
            )
        except Conflict:
            continue
        console.print(f"{target.text}: {message}")
        return
    raise Refused(
        f"{target.text} changed during each of {MAX_ATTEMPTS} attempts, so nothing was done: try again"
    )


def _require_no_rollout(body: Object) -> None:
    """Raise Refused during a rollout, which a restart would abandon. The first rollout is allowed."""
    status = stored_status(body)
    rollout = status.get("rollout") or {}
    if rollout.get("revision") and status.get("stableRevision"):
        name = body["metadata"]["name"]
        possible = commands.applicable_actions(rollout["strategy"], rollout["phase"])
        ending = [word for word in possible if word in ("promote", "abort")]
        instead = f", or {' or '.join(ending)} it first" if ending else ""
        raise Refused(
            f"{name} is {rollout['phase']}: revision {rollout['revision']} is rolling out. Wait for "
            f"its end (kubectl penstock rollout status {name} --watch){instead}"
        )


def _spec_in_use(body: Object) -> Object | None:
    """The spec that the service goes on with while its own is refused; None if it is not refused."""
    is_refused = spec_valid(stored_status(body), body["metadata"]["generation"]) == "False"
    accepted = with_accepted_spec(body) if is_refused else None
    return None if accepted is None or accepted["spec"] == body["spec"] else accepted["spec"]


def _previous(body: Object, entries: list[Revision], to: str | None) -> Revision:
    """Choose the revision to restore: `to`, or the last other stable one. Raises Refused."""
    name, status = body["metadata"]["name"], stored_status(body)
    if to is not None:
        for entry in entries:
            if entry.revision == to:
                return entry
        known = ", ".join(entry.revision for entry in entries) or "none"
        raise Refused(f"the history of {name} has no revision {to}; it has: {known}")
    if status.get("observedGeneration") != body["metadata"]["generation"]:
        raise Refused(
            f"the operator has not read the last change of {name} yet: try again, or use --to REVISION"
        )
    rollout = status.get("rollout") or {}
    rejected = (rollout.get("rejected") or {}).get("revision")
    stable = status.get("stableRevision")
    current = rollout.get("revision") or rejected or stable
    wanted = history.undo_target(entries, current, serving=stable)
    if wanted is None:
        others = [entry.revision for entry in entries if entry.revision != current]
        if not others:
            raise Refused(f"the history of {name} has no other revision")
        raise Refused(
            f"no other revision of {name} is known to have been stable: use --to with one of "
            f"{', '.join(others)}"
        )
    return wanted


async def _revisions(kube: Kube, namespace: str, body: Object) -> list[Revision]:
    """Return the service's stored revisions, latest first."""
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
