"""What a person says about a rollout: an annotation that the planner reads exactly once."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from penstock.core.observed.rollout_state import Phase
from penstock.core.rollout.phases import TRANSITIONS, Event
from penstock.core.spec.rollout import Strategy
from penstock.core.spec.service import GROUP

ANNOTATION = f"{GROUP}/rollout"

Action = Literal["promote", "abort", "pause", "resume"]

EVENTS: dict[Action, Event] = {
    "promote": "PromotedByHand",
    "abort": "AbortedByHand",
    "pause": "PausedByHand",
    "resume": "ResumedByHand",
}
_PATTERN = re.compile(rf"({'|'.join(get_args(Action))})@([0-9a-f]{{8}}) \S+")


@dataclass(frozen=True, slots=True)
class Command:
    """text: the annotation; it ends with a mark of its own, so that the same can be said twice."""

    action: Action
    revision: str
    text: str

    @property
    def event(self) -> Event:
        return EVENTS[self.action]


def possible(strategy: Strategy, phase: Phase) -> tuple[Action, ...]:
    """What means something just now."""
    listed = TRANSITIONS[strategy]
    return tuple(action for action, event in EVENTS.items() if (phase, event) in listed)


def write(action: Action, revision: str, mark: str) -> str:
    """mark: anything without spaces that no earlier command had."""
    return f"{action}@{revision} {mark}"


def read(annotation: str | None) -> Command | None:
    """None when there is none, or none that makes sense."""
    match = _PATTERN.fullmatch(annotation or "")
    for action in get_args(Action):
        if match is not None and match[1] == action:
            return Command(action, match[2], match[0])
    return None
