"""Rollout commands of a user: an annotation that the planner applies exactly once."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from penstock.core.observed.rollout_phases import Phase
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
    """A user's command. text: the whole annotation; its unique suffix allows the same command twice."""

    action: Action
    revision: str
    text: str

    @property
    def event(self) -> Event:
        return EVENTS[self.action]


def applicable_actions(strategy: Strategy, phase: Phase) -> tuple[Action, ...]:
    """The commands that have an effect in this phase."""
    listed = TRANSITIONS[strategy]
    return tuple(action for action, event in EVENTS.items() if (phase, event) in listed)


def format_command(action: Action, revision: str, mark: str) -> str:
    """Format the annotation's value. mark: a unique suffix without spaces."""
    return f"{action}@{revision} {mark}"


def parse_command(annotation: str | None) -> Command | None:
    """Parse the annotation's value; None if it is absent or malformed."""
    match = _PATTERN.fullmatch(annotation or "")
    for action in get_args(Action):
        if match is not None and match[1] == action:
            return Command(action, match[2], match[0])
    return None
