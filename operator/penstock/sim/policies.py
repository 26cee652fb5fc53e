"""Rules by name, with their knobs from text.

A rule that knows the future says so with a class method `knowing(future, **knobs)`.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.rule import Bounds, Decision, Objectives, Rule
from penstock.core.signals import Observation
from penstock.sim.profile import Profile
from penstock.sim.request import Request


@dataclass(frozen=True, slots=True)
class Future:
    """What a clairvoyant rule may know. requests: all arrivals, in order; none of a closed loop."""

    requests: Sequence[Request]
    profile: Profile
    objectives: Objectives
    bounds: Bounds
    duration_s: float


@dataclass(frozen=True, slots=True)
class StaticRule:
    """So many replicas, always; 0: the maximum."""

    replicas: int = 0
    period_s: float = 60.0

    def initial(self) -> None:
        return None

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: None
    ) -> tuple[Decision, None]:
        desired = bounds.clip(self.replicas or bounds.max_replicas)
        return Decision(desired, f"always {desired}", "Static"), None


def policies() -> dict[str, type[Any]]:
    """name -> class of the rule."""
    return {"static": StaticRule}


def make(name: str, knobs: Mapping[str, str], future: Future) -> Rule[Any]:
    """Raises ValueError when there is no such rule, or it has no such knob."""
    if name not in (known := policies()):
        raise ValueError(f"no policy {name!r}; there are: {', '.join(sorted(known))}")
    rule = known[name]
    values = {knob: _parsed(rule, name, knob, text) for knob, text in knobs.items()}
    made: Rule[Any] = rule.knowing(future, **values) if hasattr(rule, "knowing") else rule(**values)
    return made


def _parsed(rule: type[Any], name: str, knob: str, text: str) -> float | int | bool | str:
    parameters = inspect.signature(rule).parameters
    if knob not in parameters:
        raise ValueError(f"policy {name} has no knob {knob!r}; it has: {', '.join(parameters)}")
    if text in ("true", "false"):
        return text == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
