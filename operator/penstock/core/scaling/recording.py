"""Recordings of a service's scaling: what was observed and decided, as JSON lines that can be replayed.

    header: the service, the settings, and all that the rule remembered before the first decision
    line:   what was observed and decided; settings if they changed; the state if the rule changed

Decisions are pure and numbers keep their bits, so the recorded rule gives the recorded decisions.
"""

import json
import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock.core.formats.serialization import Unreadable, from_plain, to_plain
from penstock.core.scaling.by_kv import KvRule, ScalingState
from penstock.core.scaling.by_objectives.rule import Sizing
from penstock.core.scaling.by_objectives.state import SizingState
from penstock.core.scaling.engine_profile import EngineProfile
from penstock.core.scaling.rule import Bounds, Decision, Rule
from penstock.core.scaling.signals import Observation
from penstock.core.spec.objectives import Objectives

# Version 2 added the rule without objectives. Files of version 1 can be read.
VERSION: Literal[2] = 2
# For rules that do not use objectives.
NO_OBJECTIVES = Objectives(math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a decision on a service with objectives.

    max_num_batched_tokens: of an engine, for rules that need it.
    """

    rule: Sizing
    objectives: Objectives
    bounds: Bounds
    max_num_batched_tokens: int


@dataclass(frozen=True, slots=True)
class KvSettings:
    """Settings of a decision on a service without objectives."""

    rule: KvRule
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class Tick:
    """One decision on a service with objectives, with all its inputs. state: before the decision."""

    settings: Settings
    state: SizingState
    seen: Observation
    decision: Decision

    def step(self) -> tuple[Decision, SizingState]:
        """Decide again; also returns the state after the decision."""
        settings = self.settings
        return settings.rule.decide(settings.objectives, settings.bounds, self.seen, self.state)

    def decided(self, settings: Settings | None = None) -> Decision:
        """Decide again, with other settings if given."""
        return replace(self, settings=settings or self.settings).step()[0]


@dataclass(frozen=True, slots=True)
class KvTick:
    """One decision on a service without objectives, with all its inputs. state: before the decision."""

    settings: KvSettings
    state: ScalingState
    seen: Observation
    decision: Decision

    def step(self) -> tuple[Decision, ScalingState]:
        """Decide again; also returns the state after the decision."""
        return self.settings.rule.decide(None, self.settings.bounds, self.seen, self.state)

    def decided(self, settings: KvSettings | None = None) -> Decision:
        """Decide again, with other settings if given."""
        return replace(self, settings=settings or self.settings).step()[0]


AnySettings = Settings | KvSettings
AnyState = SizingState | ScalingState
AnyTick = Tick | KvTick


@dataclass(frozen=True, slots=True)
class Header:
    version: Literal[1, 2]
    service: str
    settings: Settings | KvSettings
    state: SizingState | ScalingState


@dataclass(frozen=True, slots=True)
class Line:
    seen: Observation
    decision: Decision
    settings: Settings | KvSettings | None = None
    state: SizingState | ScalingState | None = None


class Writer:
    """service: "namespace/name"."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._settings: AnySettings | None = None

    def lines(self, tick: AnyTick) -> Iterator[str]:
        """Lines of the next tick; those of the first one begin with the header."""
        settings, state = None, None
        if self._settings is None:
            yield _dumped(Header(VERSION, self._service, tick.settings, tick.state))
        elif tick.settings != self._settings:
            settings = tick.settings
            if type(settings) is not type(self._settings):  # objectives were set or removed
                state = tick.state
        self._settings = tick.settings
        yield _dumped(Line(tick.seen, tick.decision, settings, state))


@dataclass(frozen=True, slots=True)
class Recording:
    header: Header
    lines: tuple[Line, ...]

    @classmethod
    def read(cls, text: Iterable[str]) -> "Recording":
        """Parse lines of JSON. Raises Unreadable, with the number of the line."""
        records = list(enumerate(text, 1))
        if not records:
            raise Unreadable("the recording is empty")
        header = from_plain(Header, _loaded(*records[0]), "line 1")
        lines = (from_plain(Line, _loaded(n, line), f"line {n}") for n, line in records[1:])
        return cls(header, tuple(lines))

    @property
    def changes_rule(self) -> bool:
        """Whether objectives were set or removed on the way."""
        return any(line.state is not None for line in self.lines)

    def ticks(self) -> Iterator[tuple[AnyTick, Decision]]:
        """Each tick as recorded, and what the recorded rule decides now.

        Raises Unreadable if settings and state are of different rules.
        """
        settings, state = self.header.settings, self.header.state
        for number, line in enumerate(self.lines, 2):
            settings = line.settings or settings
            state = line.state or state
            tick = _tick(settings, state, line, number)
            decision, state = tick.step()
            yield tick, decision

    def under(self, rule: Rule[Any], state: Any) -> Iterator[tuple[Line, Decision]]:
        """Decisions of another rule on the recorded observations, at that rule's own period.

        Its own last number counts as provisioned, as in mode Shadow. The engines stay those recorded.
        """
        settings = self.header.settings
        next_s, decision = 0.0, None
        for line in self.lines:
            settings = line.settings or settings
            objectives = settings.objectives if isinstance(settings, Settings) else NO_OBJECTIVES
            if decision is None or line.seen.now_s >= next_s - 0.5:
                mine = line.seen.provisioned if decision is None else decision.desired
                seen = replace(line.seen, provisioned=mine)
                decision, state = rule.decide(objectives, settings.bounds, seen, state)
                next_s = line.seen.now_s + rule.period_s
            yield line, decision

    def profile(self) -> EngineProfile:
        """The engines' speed as learned by the end of the recording, for rules that need it.

        Raises Unreadable if no engine was seen, or without objectives, as only the rule of these learns.
        """
        capacities = [r.kv_capacity_tokens for line in self.lines for r in line.seen.readings]
        if not capacities:
            raise Unreadable("no engine was seen in the recording")
        ((last, _),) = deque(self.ticks(), maxlen=1)
        if not isinstance(last, Tick):
            raise Unreadable("the speed of engines is only learned with spec.objectives")
        model, settings = last.state.fit.model, last.settings
        return EngineProfile(
            base_s=model.base_s,
            prefill_token_s=model.prefill_token_s,
            sequence_s=model.sequence_s,
            kv_token_s=model.kv_token_s,
            max_batched_tokens=settings.max_num_batched_tokens,
            max_sequences=settings.rule.max_num_seqs,
            kv_capacity_tokens=capacities[-1],
        )


def _tick(settings: AnySettings, state: AnyState, line: Line, number: int) -> AnyTick:
    if isinstance(settings, Settings) and isinstance(state, SizingState):
        return Tick(settings, state, line.seen, line.decision)
    if isinstance(settings, KvSettings) and isinstance(state, ScalingState):
        return KvTick(settings, state, line.seen, line.decision)
    raise Unreadable(f"line {number}: settings and state are of different rules")


def _dumped(record: Header | Line) -> str:
    return json.dumps(to_plain(record), separators=(",", ":"), allow_nan=False)


def _loaded(number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise Unreadable(f"line {number} is no JSON: {error}") from error
