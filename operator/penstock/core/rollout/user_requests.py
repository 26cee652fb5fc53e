"""Rollout events that users cause: by a command, or by a change of the spec."""

from collections.abc import Iterator

from penstock.core.observed.rollout_state import RolloutState
from penstock.core.rollout.commands import Command
from penstock.core.rollout.phases import Event

EventWithReason = tuple[Event, str]


def user_requests(
    state: RolloutState, wanted: str, command: Command | None
) -> Iterator[EventWithReason]:
    """Events of the user's last command, whether read before or not, and of the revision of the spec."""
    yield from _commands(state, wanted, command)
    yield from _spec_changes(state, wanted)


def _commands(
    state: RolloutState, wanted: str, command: Command | None
) -> Iterator[EventWithReason]:
    if command is None or command.text == state.command:
        return
    if state.phase == "Rejected" and wanted == state.stable:
        return  # the spec asks for the serving revision, so there is nothing to retry
    if command.revision == _known_revision(state):
        yield command.event, f"{command.action} by hand"


def _spec_changes(state: RolloutState, wanted: str) -> Iterator[EventWithReason]:
    known = _known_revision(state)
    # The spec asks for the stable revision, although an earlier rollout to it was rejected.
    is_served = state.phase == "Rejected" and wanted == state.stable
    if wanted == known and not is_served:
        return
    if wanted != state.stable:
        yield "RevisionChanged", f"the spec asks for revision {wanted}"
    elif known is not None or state.phase == "Rejected":
        yield "RevisionRestored", f"the spec asks for revision {wanted} again"


def _known_revision(state: RolloutState) -> str | None:
    """The revision that is rolled out, or that the last rollout rejected."""
    return state.rejection.revision if state.rejection else state.revision
