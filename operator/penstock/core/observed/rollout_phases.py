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


# Events that end a phase. Spec: a change of spec. ReadyPods: ready pods, limited by progressDeadline.
# RemovedPods: pods without traffic are deleted, or late. NoPods: all pods are deleted, however late.
# TrafficTo*: gateways apply the weights; Rolling has none and waits for ready stable pods. Evidence: the
# judge. User: a command.
Awaited = Literal[
    "Spec",
    "ReadyPods",
    "RemovedPods",
    "NoPods",
    "TrafficToNew",
    "TrafficToStable",
    "Evidence",
    "User",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """Row of the phase table: properties of one phase."""

    # meaning, end: what it is and what ends it, for the reference page
    meaning: str
    end: str
    awaits: Awaited  # from which its deadline and what is said of its progress follow
    is_first: bool = False  # a rollout begins with it
    is_mirrored: bool = False  # the canary gets copies of requests, and no traffic
    # The canary gets requests, and its evidence and the result of its evaluation count
    is_judged: bool = False
    # The new revision gets the pods that all of the traffic needs, or has them and gets the traffic
    is_accepted: bool = False
    warns: bool = False  # its Event is a Warning if it rejects the spec's revision
    user_action: str = ""  # what a user does to end it; empty if it ends without a user

    @property
    def is_settled(self) -> bool:
        """Whether no rollout is in progress."""
        return self.awaits == "Spec"

    @property
    def starts_pods(self) -> bool:
        """Whether new pods must become ready within progressDeadline."""
        return self.awaits == "ReadyPods"

    @property
    def collects_evidence(self) -> bool:
        """Whether evidence from the canary's requests ends it: until then the canary's share grows."""
        return self.is_judged and self.awaits == "Evidence"


# {removal_s}, {gateways_s}: limits of core/rollout, which the reference page fills in.
PHASES: Mapping[Phase, PhaseRow] = {
    "Stable": PhaseRow(
        meaning="one revision has pods and all of the traffic",
        end="the spec asks for another revision",
        awaits="Spec",
    ),
    "Stopping": PhaseRow(
        meaning="Recreate: the old pods drain before new ones start",
        end="the old pods are gone; `Stalled` if they are not {removal_s} s after their grace period",
        awaits="NoPods",
        is_first=True,
    ),
    "Starting": PhaseRow(
        meaning="pods of the new revision start; no traffic",
        end=(
            "the pods are ready, else `progressDeadline` rejects the revision; `Stalled` if there is no "
            "other revision to return to"
        ),
        awaits="ReadyPods",
        is_first=True,
    ),
    "Mirroring": PhaseRow(
        meaning="Canary: the new revision gets copies of requests; no traffic",
        end="`mirror.duration` of time with copies, a fault, or a user",
        awaits="Evidence",
        is_mirrored=True,
    ),
    "Waiting": PhaseRow(
        meaning="BlueGreen: all pods are ready; a user decides when to switch",
        end="a user promotes or aborts the revision",
        awaits="User",
        user_action="`kubectl penstock rollout` promotes or aborts it",
    ),
    "Judging": PhaseRow(
        meaning="Canary: traffic is split, evidence comes in",
        end="evidence, a fault, `maxDuration` of time with requests, or a user",
        awaits="Evidence",
        is_judged=True,
    ),
    "Paused": PhaseRow(
        meaning="Canary: a user holds the traffic split",
        end="a user resumes or aborts the canary, or a fault rejects it",
        awaits="User",
        is_judged=True,
        user_action="`kubectl penstock rollout` resumes, promotes or aborts it",
    ),
    "Growing": PhaseRow(
        meaning="Canary: the new revision gets the pods that all of the traffic needs",
        end="the pods are ready, else `progressDeadline` rejects the revision",
        awaits="ReadyPods",
        is_judged=True,
        is_accepted=True,
    ),
    "Replacing": PhaseRow(
        meaning="Rolling: pods are replaced a few at a time",
        end="the pods are ready, else `progressDeadline` rejects the revision",
        awaits="ReadyPods",
        is_first=True,
    ),
    "Promoting": PhaseRow(
        meaning="all traffic goes to the new revision; gateways apply that",
        end="gateways apply the traffic, at most {gateways_s} s; BlueGreen: also `scaleDownDelay`",
        awaits="TrafficToNew",
        is_accepted=True,
    ),
    "Draining": PhaseRow(
        meaning="the old revision's pods finish their streams and terminate",
        end=(
            "the pods are gone, or {removal_s} s after their grace period. If the spec asks for another "
            "revision, its rollout does not wait for pods that are terminating"
        ),
        awaits="RemovedPods",
    ),
    "RollingBack": PhaseRow(
        meaning="all traffic goes to the old revision again; gateways apply that",
        end=(
            "gateways apply the traffic, at most {gateways_s} s, once a stable pod is ready; "
            "Rolling: stable pods are ready; `Stalled` if none gets ready within `progressDeadline`"
        ),
        awaits="TrafficToStable",
        warns=True,
    ),
    "Discarding": PhaseRow(
        meaning="the new revision's pods finish their streams and terminate",
        end="as Draining",
        awaits="RemovedPods",
    ),
    "Rejected": PhaseRow(
        meaning="like Stable, with a revision that is not retried",
        end="the spec asks for another revision, or a user resumes",
        awaits="Spec",
        warns=True,
    ),
}


def _phases(is_listed: Callable[[PhaseRow], object]) -> tuple[Phase, ...]:
    return tuple(phase for phase, row in PHASES.items() if is_listed(row))


# A status may have the phase of a newer operator, which is in none of these.
SETTLED_PHASES = _phases(lambda row: row.is_settled)
MIRRORED_PHASES = _phases(lambda row: row.is_mirrored)
JUDGED_PHASES = _phases(lambda row: row.is_judged)
EVIDENCE_PHASES = _phases(lambda row: row.collects_evidence)
PHASES_THAT_USERS_END = _phases(lambda row: row.awaits == "User")
