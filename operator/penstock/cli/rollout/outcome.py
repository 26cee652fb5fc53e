"""The outcome of a rollout, as the conditions of its object say it."""

from penstock.clients.kubernetes.client import Object
from penstock.core.formats.conditions import find_condition
from penstock.core.observed.rollout_phases import SETTLED_PHASES
from penstock.core.rollout import commands


def rollout_outcome(body: Object, *, is_abort: bool = False) -> bool | None:
    """Whether a rollout ended as the user requested.

    None while it goes on, or until the operator has read the spec. body: the service or adapter, with the
    current names in its status. is_abort: whether a rejection is requested. The phase alone does not say it:
    after a refused spec it is still that of the earlier rollout.
    """
    if not _is_read(body):
        return None
    if is_abort:
        phase = (body["status"].get("rollout") or {}).get("phase")
        return phase == "Rejected" if phase in SETTLED_PHASES else None
    if find_condition(body["status"], "Stalled", "True"):
        return False
    return True if find_condition(body["status"], "RolledOut", "True") else None


def _is_read(body: Object) -> bool:
    """Whether the operator has read the current spec and the last command."""
    status, metadata = body["status"], body["metadata"]
    command = metadata.get("annotations", {}).get(commands.ANNOTATION)
    last_read = (status.get("rollout") or {}).get("command")
    is_command_read = commands.parse_command(command) is None or last_read == command
    return is_command_read and bool(status.get("observedGeneration") == metadata["generation"])
