"""What sizing has learned of a service, small enough to be kept: a new operator goes on from it.

The level of the demand is not in it, as that is seen again within seconds: but in a silence.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

from penstock.core.formats.serialization import DecodeError, deserialize, serialize
from penstock.core.scaling.by_objectives.counterfactual import Counterfactual
from penstock.core.scaling.by_objectives.demand import Demand
from penstock.core.scaling.by_objectives.idle_gap import IdleGap
from penstock.core.scaling.by_objectives.iteration import NUM_TERMS, TYPICAL, Fit
from penstock.core.scaling.by_objectives.mixed import Known
from penstock.core.scaling.by_objectives.state import SizingState
from penstock.core.scaling.by_objectives.traffic import Mean, Traffic
from penstock.core.scaling.by_objectives.watch import Watch

VERSION: Literal[8] = 8
# What differs by less is the noise of the same load.
NOTABLE_SHARE = 0.15
# Windows before an iteration model is more than its prior.
MIN_WINDOWS = 5


@dataclass(frozen=True, slots=True)
class Learned:
    """watch: the model of the iteration time. start_ups_s: of the last pods; counted: the names of those
    that are there. prompt to attended: means of the requests. demand: without its history. known: of
    each variant, where there are some. silence: that is waited out, where there is one. level: of the
    demand before it."""

    version: Literal[8]
    watch: Watch
    start_ups_s: tuple[float, ...]
    counted: frozenset[str]
    prompt: Mean
    output: Mean
    miss: Mean
    held: Mean
    answered: Mean
    attended: Mean
    demand: Demand
    hindsight: Counterfactual
    known: Mapping[str, Known] = field(default_factory=dict)
    silence: IdleGap | None = None
    level: float = 0.0

    @classmethod
    def of(cls, state: SizingState) -> "Learned":
        traffic = state.traffic
        is_silent = state.silence.lasts(state.news_s)
        return cls(
            version=VERSION,
            watch=state.watch.kept(),
            start_ups_s=state.startup.times_s,
            counted=state.startup.seen,
            prompt=traffic.prompt,
            output=traffic.output,
            miss=traffic.miss,
            held=traffic.held,
            answered=traffic.answered,
            attended=traffic.attended,
            demand=state.demand.kept(),
            hindsight=state.hindsight.kept(),
            known={name: each.kept() for name, each in state.known.items()},
            silence=state.silence if is_silent else None,
            level=state.demand.level if is_silent else 0.0,
        )

    def restored(self, fresh: SizingState, now_s: float) -> SizingState:
        """A state that knows this, and has seen nothing yet but a silence that goes on."""
        known, silence = self._known(fresh), self.silence
        if silence is None or silence.heard_s is None or not silence.lasts(now_s):
            return known
        demand = self.demand.steady(silence.heard_s, self.level)
        return replace(known, demand=demand, silence=silence, news_s=now_s)

    def _known(self, fresh: SizingState) -> SizingState:
        return replace(
            fresh,
            watch=self.watch,
            startup=replace(fresh.startup, times_s=self.start_ups_s, seen=self.counted),
            traffic=Traffic(
                self.prompt, self.output, self.miss, self.held, self.answered, self.attended
            ),
            demand=self.demand,
            hindsight=self.hindsight,
            known=self.known,
        )

    def is_notable(self, kept: "Learned | None", *, is_idle: bool) -> bool:
        """Whether it is worth a write, when `kept` is what is written already.

        What is thought of the demand goes on for a while when nothing comes any more; that is not
        worth one.
        """
        if kept is None:
            return any(starts or fit.windows >= MIN_WINDOWS for fit, starts in self._fitted())
        if self.known.keys() != kept.known.keys() or self.silence != kept.silence:
            return True
        pairs = [
            *(
                (fit.model.time_s(*TYPICAL), old.model.time_s(*TYPICAL))
                for (fit, _), (old, _) in zip(self._fitted(), kept._fitted(), strict=True)
            ),
            (self.prompt.value, kept.prompt.value),
            (self.output.value, kept.output.value),
        ]
        if not is_idle:
            pairs.append((self.demand.noise, kept.demand.noise))
            pairs += zip(_watched(self.demand), _watched(kept.demand), strict=True)
        differs = any(abs(new - old) > NOTABLE_SHARE * old for new, old in pairs)
        starts, before = ([each for _, each in them._fitted()] for them in (self, kept))
        return differs or starts != before

    def _fitted(self) -> list[tuple[Fit, tuple[float, ...]]]:
        """What was learned of the one kind of engines, or of each: times and start-ups."""
        if not self.known:
            return [(self.watch.fit, self.start_ups_s)]
        return [(each.fit, each.startup.times_s) for _, each in sorted(self.known.items())]


def to_record(learned: Learned) -> dict[str, Any]:
    record: dict[str, Any] = serialize(learned)
    return record


def from_record(record: object) -> Learned | None:
    """None when it is of another version or no such record: what it said is learned anew."""
    try:
        learned = deserialize(Learned, record)
    except DecodeError:
        return None
    is_alike = _shape(learned.demand) == _shape(Demand())
    fits = [learned.watch.fit, *(each.fit for each in learned.known.values())]
    is_alike = is_alike and all(_shape(fit.covariance) == _SQUARE for fit in fits)
    return learned if is_alike else None


def _watched(demand: Demand) -> list[float]:
    return [surprise.watched_s for surprise in demand.surprises]


def _shape(value: object) -> object:
    """How long its tuples are, all the way down."""
    if is_dataclass(value):
        return tuple(_shape(getattr(value, f.name)) for f in fields(value))
    return tuple(_shape(each) for each in value) if isinstance(value, tuple) else None


_SQUARE = ((None,) * NUM_TERMS,) * NUM_TERMS
