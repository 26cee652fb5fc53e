"""What a service's scaler saw and decided, as lines of JSON, and what any rule makes of it later.

    header: the service, what it was decided with, and all that the rule remembered before the first look
    line:   what was seen, what was decided; and with what, when that has changed

Decisions are pure and numbers keep their bits, so the recorded rule gives the recorded decisions.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock.core.formats.serialization import Unreadable, from_plain, to_plain
from penstock.core.scaling.by_objectives.rule import Sizing
from penstock.core.scaling.by_objectives.state import SizingState
from penstock.core.scaling.engine_profile import EngineProfile
from penstock.core.scaling.rule import Bounds, Decision, Rule
from penstock.core.scaling.signals import Observation
from penstock.core.spec.objectives import Objectives

VERSION: Literal[1] = 1


@dataclass(frozen=True, slots=True)
class Settings:
    """What a decision is made with. max_num_batched_tokens: of an engine, for rules that ask."""

    rule: Sizing
    objectives: Objectives
    bounds: Bounds
    max_num_batched_tokens: int


@dataclass(frozen=True, slots=True)
class Tick:
    """One decision and all that went into it. state: before it."""

    settings: Settings
    state: SizingState
    seen: Observation
    decision: Decision

    def decided(self, settings: Settings | None = None) -> Decision:
        """What the rule says to the same, or with other settings."""
        with_ = settings or self.settings
        return with_.rule.decide(with_.objectives, with_.bounds, self.seen, self.state)[0]


@dataclass(frozen=True, slots=True)
class Header:
    version: Literal[1]
    service: str
    settings: Settings
    state: SizingState


@dataclass(frozen=True, slots=True)
class Line:
    seen: Observation
    decision: Decision
    settings: Settings | None = None


class Writer:
    """service: "namespace/name"."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._settings: Settings | None = None

    def lines(self, tick: Tick) -> Iterator[str]:
        """Of the next tick, the first one's with the header."""
        changed = None
        if self._settings is None:
            yield _dumped(Header(VERSION, self._service, tick.settings, tick.state))
        elif tick.settings != self._settings:
            changed = tick.settings
        self._settings = tick.settings
        yield _dumped(Line(tick.seen, tick.decision, changed))


@dataclass(frozen=True, slots=True)
class Recording:
    header: Header
    lines: tuple[Line, ...]

    @classmethod
    def read(cls, text: Iterable[str]) -> "Recording":
        """Raises Unreadable, with the number of the line."""
        records = list(enumerate(text, 1))
        if not records:
            raise Unreadable("the recording is empty")
        header = from_plain(Header, _loaded(*records[0]), "line 1")
        lines = (from_plain(Line, _loaded(n, line), f"line {n}") for n, line in records[1:])
        return cls(header, tuple(lines))

    def ticks(self) -> Iterator[tuple[Tick, Decision]]:
        """Each tick as it was, and what the recorded rule decides now."""
        settings, state = self.header.settings, self.header.state
        for line in self.lines:
            settings = line.settings or settings
            tick = Tick(settings, state, line.seen, line.decision)
            decision, state = settings.rule.decide(
                settings.objectives, settings.bounds, line.seen, state
            )
            yield tick, decision

    def under(self, rule: Rule[Any], state: Any) -> Iterator[tuple[Line, Decision]]:
        """What another rule decides of the same looks, as often as it looks: its own last number is
        what it takes to be provisioned, as in Shadow mode. The engines stay those that were there.
        """
        settings = self.header.settings
        next_s, decision = 0.0, None
        for line in self.lines:
            settings = line.settings or settings
            if decision is None or line.seen.now_s >= next_s - 0.5:
                mine = line.seen.provisioned if decision is None else decision.desired
                seen = replace(line.seen, provisioned=mine)
                decision, state = rule.decide(settings.objectives, settings.bounds, seen, state)
                next_s = line.seen.now_s + rule.period_s
            yield line, decision

    def profile(self) -> EngineProfile:
        """What was learned of the engines by the end, for rules that must be told.

        Raises Unreadable when no engine was seen.
        """
        capacities = [r.kv_capacity_tokens for line in self.lines for r in line.seen.readings]
        if not capacities:
            raise Unreadable("no engine was seen in the recording")
        ((last, _),) = deque(self.ticks(), maxlen=1)
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


def _dumped(record: Header | Line) -> str:
    return json.dumps(to_plain(record), separators=(",", ":"), allow_nan=False)


def _loaded(number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise Unreadable(f"line {number} is no JSON: {error}") from error
