"""When `penstock rollout --watch` ends, and with which exit status."""

from typing import Any

import pytest

from penstock.cli.rollout.outcome import rollout_outcome
from penstock.core.rollout.commands import ANNOTATION

COMMAND = "abort@00000000 again"


def service(
    phase: str | None = "Stable", *, read: int = 2, command: str = COMMAND, **conditions: str
) -> dict[str, Any]:
    """A service of generation 2 with a command. read, command: what the operator has read."""
    rollout = {"rollout": {"phase": phase, "command": command}} if phase else {}
    found = [{"type": name, "status": status} for name, status in conditions.items()]
    return {
        "metadata": {"generation": 2, "annotations": {ANNOTATION: COMMAND}},
        "status": {"observedGeneration": read, "conditions": found, **rollout},
    }


@pytest.mark.parametrize(
    ("body", "outcome", "outcome_of_abort"),
    [
        (service(RolledOut="True", Stalled="False"), True, False),
        (service("Judging", RolledOut="False", Stalled="False"), None, None),
        (service("Rejected", RolledOut="False", Stalled="True"), False, True),
        # The spec was refused: the phase is of the spec before.
        (service(RolledOut="False", Stalled="True"), False, False),
        # The first revision does not come up; it has no other to return to.
        (service("Starting", RolledOut="False", Stalled="True"), False, None),
        # Another service has the model name, so no request reaches this one.
        (service(RolledOut="True", Stalled="True"), False, False),
        # The next rollout has not started yet.
        (service(RolledOut="False", Stalled="False"), None, False),
        (service(read=1, RolledOut="True"), None, None),
        (service(command="promote@00000000 earlier", RolledOut="True"), None, None),
    ],
)
def test_outcome(body: dict[str, Any], outcome: bool | None, outcome_of_abort: bool | None) -> None:
    assert rollout_outcome(body) is outcome
    assert rollout_outcome(body, is_abort=True) is outcome_of_abort


def test_an_adapter_that_waits_for_its_service_has_no_outcome_yet() -> None:
    body = service(None, command="", RolledOut="Unknown", Stalled="False")
    body["metadata"]["annotations"] = {}
    assert rollout_outcome(body) is None
