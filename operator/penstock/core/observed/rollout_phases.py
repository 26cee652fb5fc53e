"""Phases of a rollout, and their properties under every strategy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Phase = Literal[
    "Stable",
    "Stopping",
    "Starting",
    "Mirroring",
    "Waiting",
    "Judging",
    "Paused",
    "Growing",
    "Replacing",
    "Promoting",
    "Draining",
    "RollingBack",
    "Discarding",
    "Rejected",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """Row of the phase table: properties of one phase.

    meaning: for the reference page. is_settled: no rollout is in progress. is_first: a rollout begins with
    it. starts_pods: new pods must become ready within progressDeadline. is_judged: the canary gets requests,
    and its evidence and the result of its evaluation count. user_action: what a user does to end it; empty if
    it ends without a user.
    """

    meaning: str
    is_settled: bool = False
    is_first: bool = False
    starts_pods: bool = False
    is_judged: bool = False
    user_action: str = ""


PHASES: Mapping[Phase, PhaseRow] = {
    "Stable": PhaseRow(meaning="one revision has pods and all of the traffic", is_settled=True),
    "Stopping": PhaseRow(
        meaning="Recreate: the old pods drain before new ones start",
        is_first=True,
    ),
    "Starting": PhaseRow(
        meaning="pods of the new revision start; no traffic",
        is_first=True,
        starts_pods=True,
    ),
    "Mirroring": PhaseRow(
        meaning="Canary: the new revision gets copies of requests; no traffic",
    ),
    "Waiting": PhaseRow(
        meaning="BlueGreen: all pods are ready; a user decides when to switch",
        user_action="`kubectl penstock rollout` promotes or aborts it",
    ),
    "Judging": PhaseRow(
        meaning="Canary: traffic is split, evidence comes in",
        is_judged=True,
    ),
    "Paused": PhaseRow(
        meaning="Canary: a user holds the traffic split",
        is_judged=True,
        user_action="`kubectl penstock rollout` resumes, promotes or aborts it",
    ),
    "Growing": PhaseRow(
        meaning="Canary: the new revision gets the pods that all of the traffic needs",
        starts_pods=True,
        is_judged=True,
    ),
    "Replacing": PhaseRow(
        meaning="Rolling: pods are replaced a few at a time",
        is_first=True,
        starts_pods=True,
    ),
    "Promoting": PhaseRow(meaning="all traffic goes to the new revision; gateways apply that"),
    "Draining": PhaseRow(meaning="the old revision's pods finish their streams and terminate"),
    "RollingBack": PhaseRow(
        meaning="all traffic goes to the old revision again; gateways apply that"
    ),
    "Discarding": PhaseRow(meaning="the new revision's pods finish their streams and terminate"),
    "Rejected": PhaseRow(
        meaning="like Stable, with a revision that is not retried",
        is_settled=True,
    ),
}


def _phases(is_listed: Callable[[PhaseRow], object]) -> tuple[Phase, ...]:
    return tuple(phase for phase, row in PHASES.items() if is_listed(row))


# A status may have the phase of a newer operator, which is in none of these.
SETTLED_PHASES = _phases(lambda row: row.is_settled)
JUDGED_PHASES = _phases(lambda row: row.is_judged)
PHASES_THAT_USERS_END = _phases(lambda row: row.user_action)
