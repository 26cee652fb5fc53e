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

from penstock.core.formats.json_text import parse_json
from penstock.core.formats.serialization import DecodeError, deserialize, serialize
from penstock.core.scaling.by_kv.tick import KvSettings, KvTick
from penstock.core.scaling.by_objectives.state import ObjectivesState
from penstock.core.scaling.by_objectives.tick import Settings, Tick
from penstock.core.scaling.delays import ScaleDownDelay
from penstock.core.scaling.engine_profile import EngineProfile
from penstock.core.scaling.rule import Decision, Rule
from penstock.core.scaling.signals import Observation
from penstock.core.spec.objectives import Objectives

# Version 2 added the rule without objectives. Versions 3 and 4 have other rules by objectives, with other
# states, so that older recordings of those cannot be replayed. Version 5 added the decision about zero to the
# bounds, and version 6 its totals.
VERSION: Literal[6] = 6
OLDER_VERSIONS = (1, 2, 3)
# For rules that do not use objectives.
NO_OBJECTIVES = Objectives(math.inf, math.inf)


AnySettings = Settings | KvSettings
AnyState = ObjectivesState | ScaleDownDelay
AnyTick = Tick | KvTick


@dataclass(frozen=True, slots=True)
class Header:
    """First line of a recording. state: before the first decision."""

    version: Literal[2, 3, 4, 5, 6]
    service: str
    settings: Settings | KvSettings
    state: ObjectivesState | ScaleDownDelay


@dataclass(frozen=True, slots=True)
class TickRecord:
    """Later line of a recording. settings: if they changed. state: if the rule changed with them."""

    seen: Observation
    decision: Decision
    settings: Settings | KvSettings | None = None
    state: ObjectivesState | ScaleDownDelay | None = None


class RecordingWriter:
    """Writes a recording as lines of JSON. service: "namespace/name"."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._settings: AnySettings | None = None

    def lines(self, tick: AnyTick) -> Iterator[str]:
        """Lines of the next tick; those of the first one begin with the header."""
        settings, state = None, None
        if self._settings is None:
            yield _to_json(Header(VERSION, self._service, tick.settings, tick.state))
        elif tick.settings != self._settings:
            settings = tick.settings
            if type(settings) is not type(self._settings):  # objectives were set or removed
                state = tick.state
        self._settings = tick.settings
        yield _to_json(TickRecord(tick.seen, tick.decision, settings, state))


@dataclass(frozen=True, slots=True)
class Recording:
    header: Header
    lines: tuple[TickRecord, ...]

    @classmethod
    def read(cls, text: Iterable[str]) -> "Recording":
        """Parse lines of JSON. Raises DecodeError, with the number of the line."""
        records = list(enumerate(text, 1))
        if not records:
            raise DecodeError("the recording is empty")
        first = _from_json(*records[0])
        version = first.get("version") if isinstance(first, dict) else None
        header = deserialize(Header, _replayable(first, version), "line 1")
        lines = (
            deserialize(TickRecord, _replayable(_from_json(n, line), version), f"line {n}")
            for n, line in records[1:]
        )
        recording = cls(header, tuple(lines))
        if not recording.lines:
            raise DecodeError("the recording has no decisions, only its first line")
        return recording

    @property
    def changes_rule(self) -> bool:
        """Whether objectives were set or removed on the way."""
        return any(line.state is not None for line in self.lines)

    def replay(self) -> Iterator[tuple[AnyTick, Decision]]:
        """Each tick as recorded, and what the recorded rule decides now.

        Raises DecodeError if settings and state are of different rules.
        """
        settings, state = self.header.settings, self.header.state
        for number, line in enumerate(self.lines, 2):
            settings = line.settings or settings
            state = line.state or state
            tick = _tick(settings, state, line, number)
            decision, state = tick.step()
            yield tick, decision

    def replay_with(self, rule: Rule[Any], state: Any) -> Iterator[tuple[TickRecord, Decision]]:
        """Decisions of another rule on the recorded observations, at that rule's own period.

        Its own last number counts as provisioned, as in mode DryRun. The engines stay those recorded.
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

        Raises DecodeError if no engine was seen, or without objectives, as only the rule of these learns.
        """
        readings = [reading for line in self.lines for reading in line.seen.readings]
        if not readings:
            raise DecodeError("no engine was seen in the recording")
        ((last, _),) = deque(self.replay(), maxlen=1)
        if not isinstance(last, Tick):
            raise DecodeError("the speed of engines is only learned with spec.objectives")
        model, settings, reading = last.state.fit.model, last.settings, readings[-1]
        return EngineProfile(
            base_s=model.base_s,
            prefill_token_s=model.prefill_token_s,
            sequence_s=model.sequence_s,
            kv_token_s=model.kv_token_s,
            max_batched_tokens=reading.max_num_batched_tokens or settings.max_num_batched_tokens,
            max_sequences=reading.max_num_seqs or settings.rule.max_num_seqs,
            kv_capacity_tokens=reading.kv_capacity_tokens,
        )


def _replayable(record: Any, version: Any) -> Any:
    """The JSON of a line. Raises DecodeError if an older rule by objectives made it."""
    settings = record.get("settings") if isinstance(record, dict) else None
    if version in OLDER_VERSIONS and isinstance(settings, dict) and "objectives" in settings:
        raise DecodeError(
            f"it was recorded by an older Penstock with another rule by objectives (format {version}, "
            f"not {VERSION}). Replay it with that version, or upgrade the operator and record again"
        )
    return record


def _tick(settings: AnySettings, state: AnyState, line: TickRecord, number: int) -> AnyTick:
    if isinstance(settings, Settings) and isinstance(state, ObjectivesState):
        return Tick(settings, state, line.seen, line.decision)
    if isinstance(settings, KvSettings) and isinstance(state, ScaleDownDelay):
        return KvTick(settings, state, line.seen, line.decision)
    raise DecodeError(f"line {number}: settings and state are of different rules")


def _to_json(record: Header | TickRecord) -> str:
    return json.dumps(serialize(record), separators=(",", ":"), allow_nan=False)


def _from_json(number: int, line: str) -> Any:
    try:
        return parse_json(line)
    except ValueError as error:
        raise DecodeError(f"line {number} is not JSON: {error}") from error
