"""What sizing has learned of a service, small enough to be kept: a new operator goes on from it.

The level of the demand is not in it: that is seen again within seconds.
"""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal

from penstock.core.plain import Unreadable, from_plain, to_plain
from penstock.core.sizing.demand import Demand
from penstock.core.sizing.iteration import NUM_TERMS, Fit
from penstock.core.sizing.rule import SizingState
from penstock.core.sizing.traffic import Mean, Traffic

VERSION: Literal[3] = 3
# What differs by less is the noise of the same load.
NOTABLE_SHARE = 0.15
# An iteration at which two models are compared.
TYPICAL = (64.0, 8.0, 8_000.0)
# Windows before an iteration model is more than its prior.
MIN_WINDOWS = 5


@dataclass(frozen=True, slots=True)
class Learned:
    """fit: of the iteration time. start_ups_s: of the last pods; counted: the names of those that
    are there. prompt, output, miss, held: means of the requests. demand: without its history."""

    version: Literal[3]
    fit: Fit
    start_ups_s: tuple[float, ...]
    counted: frozenset[str]
    prompt: Mean
    output: Mean
    miss: Mean
    held: Mean
    demand: Demand

    @classmethod
    def of(cls, state: SizingState) -> "Learned":
        traffic = state.traffic
        return cls(
            version=VERSION,
            fit=replace(state.fit, beyond=0),
            start_ups_s=state.startup.times_s,
            counted=state.startup.seen,
            prompt=traffic.prompt,
            output=traffic.output,
            miss=traffic.miss,
            held=traffic.held,
            demand=state.demand.kept(),
        )

    def restored(self, fresh: SizingState) -> SizingState:
        """A state that knows this, and has seen nothing yet."""
        return replace(
            fresh,
            fit=self.fit,
            startup=replace(fresh.startup, times_s=self.start_ups_s, seen=self.counted),
            traffic=Traffic(self.prompt, self.output, self.miss, self.held),
            demand=self.demand,
        )

    def is_notable(self, kept: "Learned | None", *, is_idle: bool) -> bool:
        """Whether it is worth a write, when `kept` is what is written already.

        What is thought of the demand goes on for a while when nothing comes any more; that is not
        worth one.
        """
        if kept is None:
            return bool(self.start_ups_s) or self.fit.windows >= MIN_WINDOWS
        pairs = [
            (self.fit.model.time_s(*TYPICAL), kept.fit.model.time_s(*TYPICAL)),
            (self.prompt.value, kept.prompt.value),
            (self.output.value, kept.output.value),
        ]
        if not is_idle:
            pairs.append((self.demand.noise, kept.demand.noise))
            pairs += zip(_watched(self.demand), _watched(kept.demand), strict=True)
        differs = any(abs(new - old) > NOTABLE_SHARE * old for new, old in pairs)
        return differs or self.start_ups_s != kept.start_ups_s


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
    return learned if is_alike and _shape(learned.fit.covariance) == _SQUARE else None


def _watched(demand: Demand) -> list[float]:
    return [surprise.watched_s for surprise in demand.surprises]


def _shape(value: object) -> object:
    """How long its tuples are, all the way down."""
    if is_dataclass(value):
        return tuple(_shape(getattr(value, f.name)) for f in fields(value))
    return tuple(_shape(each) for each in value) if isinstance(value, tuple) else None


_SQUARE = ((None,) * NUM_TERMS,) * NUM_TERMS
