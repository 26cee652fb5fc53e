"""Transition table of rollout phases, by strategy. Transitions that are not listed raise an error.

Routes move before pods are deleted: each path out of a phase with traffic on two revisions leads through
Promoting or RollingBack (routes), then Draining or Discarding (pods). A rejected revision stays
rejected until the spec changes.

Events are level-triggered: one that a phase does not list (a new spec while the old canary's pods
terminate) is detected again in the next phase.
"""

from collections.abc import Mapping
from typing import Literal

from penstock.core.observed.rollout_phases import Phase
from penstock.core.spec.rollout import Strategy

Event = Literal[
    "RevisionChanged",
    "RevisionRestored",
    "PodsReady",
    "ReadyToMirror",
    "ReadyToSwitch",
    "PodsGone",
    "PodsFailed",
    "MirrorPassed",
    "Accepted",
    "Aborted",
    "PromotedByHand",
    "AbortedByHand",
    "PausedByHand",
    "ResumedByHand",
    "RoutesMoved",
]

EVENTS: Mapping[Event, str] = {
    "RevisionChanged": "the spec asks for a revision that is neither stable nor being rolled out",
    "RevisionRestored": "the spec asks for the stable revision again",
    "PodsReady": "all pods that the phase starts are ready",
    "ReadyToMirror": "as PodsReady, and the canary gets copies of requests before traffic",
    "ReadyToSwitch": "as PodsReady, and a user decides when to switch",
    "PodsGone": "all pods that the phase drains are gone, or not waited for any more",
    "PodsFailed": "pods of the new revision cannot start, or crash",
    "MirrorPassed": "copies of requests revealed no fault for the configured duration",
    "Accepted": "the judge accepts the canary, or onTimeout is Promote",
    "Aborted": "the judge or a gate rejects the canary, or onTimeout is Rollback",
    "PromotedByHand": "a user ran `kubectl penstock rollout promote`",
    "AbortedByHand": "a user ran `kubectl penstock rollout abort`",
    "PausedByHand": "a user ran `kubectl penstock rollout pause`",
    "ResumedByHand": "a user ran `kubectl penstock rollout resume`",
    "RoutesMoved": "every gateway applies the new weights",
}
"""Meaning of each event, for the reference page."""

Table = Mapping[tuple[Phase, Event], Phase]


class UnlistedTransition(ValueError):
    """The phase does not list the event; a caller must check the table first."""

    def __init__(self, strategy: Strategy, phase: Phase, event: Event) -> None:
        super().__init__(f"{strategy}: {event} has no meaning while {phase}")


# A spec change during a rollout first rolls the unfinished one back: never three revisions at once.
_BACK: Table = {
    ("RollingBack", "RoutesMoved"): "Discarding",
    ("Discarding", "PodsGone"): "Rejected",
    ("Rejected", "RevisionChanged"): "Starting",
    ("Rejected", "ResumedByHand"): "Starting",
    ("Rejected", "RevisionRestored"): "Stable",
}

_FORWARD: Table = {
    ("Stable", "RevisionChanged"): "Starting",
    ("Promoting", "RoutesMoved"): "Draining",
    ("Draining", "PodsGone"): "Stable",
}

_STARTING: Table = {
    ("Starting", "PodsFailed"): "Discarding",
    ("Starting", "RevisionChanged"): "Discarding",
    ("Starting", "RevisionRestored"): "Discarding",
    ("Starting", "AbortedByHand"): "Discarding",
}

# The old pods still exist, so routes can return to them at once.
_PROMOTING: Table = {
    ("Promoting", "PodsFailed"): "RollingBack",
    ("Promoting", "AbortedByHand"): "RollingBack",
    ("Promoting", "RevisionRestored"): "RollingBack",
}

TRANSITIONS: Mapping[Strategy, Table] = {
    "Canary": {
        **_FORWARD,
        **_STARTING,
        ("Starting", "PodsReady"): "Judging",
        ("Starting", "PromotedByHand"): "Growing",
        ("Starting", "ReadyToMirror"): "Mirroring",
        ("Mirroring", "MirrorPassed"): "Judging",
        ("Mirroring", "PromotedByHand"): "Growing",
        ("Mirroring", "Aborted"): "Discarding",
        ("Mirroring", "AbortedByHand"): "Discarding",
        ("Mirroring", "PodsFailed"): "Discarding",
        ("Mirroring", "RevisionChanged"): "Discarding",
        ("Mirroring", "RevisionRestored"): "Discarding",
        ("Judging", "Accepted"): "Growing",
        ("Judging", "PromotedByHand"): "Growing",
        ("Judging", "Aborted"): "RollingBack",
        ("Judging", "AbortedByHand"): "RollingBack",
        ("Judging", "PodsFailed"): "RollingBack",
        ("Judging", "RevisionChanged"): "RollingBack",
        ("Judging", "RevisionRestored"): "RollingBack",
        ("Judging", "PausedByHand"): "Paused",
        ("Paused", "ResumedByHand"): "Judging",
        ("Paused", "PromotedByHand"): "Growing",
        ("Paused", "Aborted"): "RollingBack",
        ("Paused", "AbortedByHand"): "RollingBack",
        ("Paused", "PodsFailed"): "RollingBack",
        ("Paused", "RevisionChanged"): "RollingBack",
        ("Paused", "RevisionRestored"): "RollingBack",
        ("Growing", "PodsReady"): "Promoting",
        ("Growing", "Aborted"): "RollingBack",
        ("Growing", "AbortedByHand"): "RollingBack",
        ("Growing", "PodsFailed"): "RollingBack",
        ("Growing", "RevisionChanged"): "RollingBack",
        ("Growing", "RevisionRestored"): "RollingBack",
        **_PROMOTING,
        **_BACK,
    },
    "BlueGreen": {
        **_FORWARD,
        **_STARTING,
        ("Starting", "PodsReady"): "Promoting",
        ("Starting", "ReadyToSwitch"): "Waiting",
        ("Waiting", "PodsReady"): "Promoting",
        ("Waiting", "PromotedByHand"): "Promoting",
        ("Waiting", "AbortedByHand"): "Discarding",
        ("Waiting", "PodsFailed"): "Discarding",
        ("Waiting", "RevisionChanged"): "Discarding",
        ("Waiting", "RevisionRestored"): "Discarding",
        **_PROMOTING,
        **_BACK,
    },
    "Rolling": {
        ("Stable", "RevisionChanged"): "Replacing",
        ("Replacing", "PodsReady"): "Stable",
        ("Replacing", "RevisionChanged"): "Replacing",
        ("Replacing", "RevisionRestored"): "Replacing",
        ("Replacing", "AbortedByHand"): "RollingBack",
        ("Replacing", "PodsFailed"): "RollingBack",
        # Routes follow ready pods in this strategy, so RollingBack waits for pods only.
        ("RollingBack", "PodsReady"): "Rejected",
        ("Rejected", "RevisionChanged"): "Replacing",
        ("Rejected", "ResumedByHand"): "Replacing",
        ("Rejected", "RevisionRestored"): "Stable",
    },
    "Recreate": {
        ("Stable", "RevisionChanged"): "Stopping",
        ("Stopping", "RevisionChanged"): "Stopping",
        ("Stopping", "RevisionRestored"): "Stopping",
        ("Stopping", "PodsGone"): "Starting",
        # The old pods are gone, so there is no rollback: failed pods wait for another revision.
        ("Starting", "RevisionChanged"): "Stopping",
        ("Starting", "RevisionRestored"): "Stopping",
        ("Starting", "PodsReady"): "Stable",
        # Rejected under another strategy, before the spec changed to Recreate.
        ("Rejected", "RevisionChanged"): "Stopping",
        ("Rejected", "ResumedByHand"): "Stopping",
        ("Rejected", "RevisionRestored"): "Stable",
    },
}


def next_phase(strategy: Strategy, phase: Phase, event: Event) -> Phase:
    """The phase after an event. Raises UnlistedTransition."""
    try:
        return TRANSITIONS[strategy][phase, event]
    except KeyError:
        raise UnlistedTransition(strategy, phase, event) from None
