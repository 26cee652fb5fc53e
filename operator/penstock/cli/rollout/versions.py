"""Shows the versions of an adapter, and returns to an earlier one."""

from rich.table import Column, Table

from penstock.cli.rollout.status import console
from penstock.cli.rollout.target import Refused
from penstock.clients.kubernetes.client import Object
from penstock.core.adapters.versions import VersionRecord, history_of, undo_target
from penstock.core.observed.stored_status import stored_status


def print_versions(body: Object) -> None:
    """Print the versions of a LoraAdapter as a table, the latest rollout first."""
    status = stored_status(body)
    rollout = status.get("rollout") or {}
    states = {
        status.get("stableRevision"): "stable",
        rollout.get("revision"): "rolling out",
        (rollout.get("rejected") or {}).get("revision"): "rejected",
    }
    table = Table("revision", "state", "rollout began", Column("URI", overflow="fold"))
    for version in history_of(status):
        other = "was stable" if version.stable_time else "never stable"
        state = states.get(version.revision, other)
        table.add_row(version.revision, state, version.start_time, version.uri)
    console.print(table)


def undo_patch(body: Object, to: str | None) -> tuple[list[Object], str]:
    """The JSON patch that restores the URI of an earlier version, and a message. Raises Refused."""
    version = _wanted(body, to)
    patch = [{"op": "replace", "path": "/spec/model/uri", "value": version.uri}]
    return patch, f"restored {version.uri}, revision {version.revision}"


def _wanted(body: Object, to: str | None) -> VersionRecord:
    """The version to restore: `to`, or the last other stable one. Raises Refused."""
    name, status = body["metadata"]["name"], stored_status(body)
    history = history_of(status)
    if to is not None:
        found = next((each for each in history if each.revision == to), None)
        if found is None:
            known = ", ".join(each.revision for each in history) or "none"
            raise Refused(f"the history of lora/{name} has no revision {to}; it has: {known}")
        return found
    if status.get("observedGeneration") != body["metadata"]["generation"]:
        raise Refused(
            f"the operator has not read the last change of lora/{name} yet: try again, or use "
            "--to REVISION"
        )
    rollout = status.get("rollout") or {}
    rejected, stable = (
        (rollout.get("rejected") or {}).get("revision"),
        status.get("stableRevision"),
    )
    wanted = undo_target(history, rollout.get("revision") or rejected or stable, stable)
    if wanted is None:
        raise Refused(f"no other version of lora/{name} is known to have been stable")
    return wanted
