"""What sizing has learned of a service, small enough to be kept: a new operator goes on from it.

The level of the demand is not in it: that is seen again within seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

from penstock.core.plain import Unreadable, from_plain, to_plain
from penstock.core.sizing.demand import Demand
from penstock.core.sizing.hindsight import Hindsight
from penstock.core.sizing.iteration import NUM_TERMS, TYPICAL, Fit
from penstock.core.sizing.mixed import Known
from penstock.core.sizing.state import SizingState
from penstock.core.sizing.traffic import Mean, Traffic
from penstock.core.sizing.watch import Watch

VERSION: Literal[7] = 7
# What differs by less is the noise of the same load.
NOTABLE_SHARE = 0.15
# Windows before an iteration model is more than its prior.
MIN_WINDOWS = 5


@dataclass(frozen=True, slots=True)
class Learned:
    """watch: the model of the iteration time. start_ups_s: of the last pods; counted: the names of those
    that are there. prompt to attended: means of the requests. demand: without its history. known: of
    each variant, where there are some."""

    version: Literal[7]
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
    hindsight: Hindsight
    known: Mapping[str, Known] = field(default_factory=dict)

    @classmethod
    def of(cls, state: SizingState) -> "Learned":
        traffic = state.traffic
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
        )

    def restored(self, fresh: SizingState) -> SizingState:
        """A state that knows this, and has seen nothing yet."""
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
        if self.known.keys() != kept.known.keys():
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
    record: dict[str, Any] = to_plain(learned)
    return record


def from_record(record: object) -> Learned | None:
    """None when it is of another version or no such record: what it said is learned anew."""
    try:
        learned = from_plain(Learned, record)
    except Unreadable:
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
