"""Stored record of the learned state of the scaling rule, from which a restarted operator continues.

The load is not in it, because arrivals show it again within seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

from penstock.core.engine_time.iteration import NUM_TERMS, TYPICAL, Fit
from penstock.core.formats.serialization import DecodeError, deserialize, serialize
from penstock.core.scaling.by_objectives.correction import Correction
from penstock.core.scaling.by_objectives.forecast import Errors, Forecast
from penstock.core.scaling.by_objectives.outcomes import Outcomes
from penstock.core.scaling.by_objectives.state import ObjectivesState
from penstock.core.scaling.learned.startup import StartUp
from penstock.core.scaling.learned.traffic import Mean, Traffic
from penstock.core.scaling.learned.watch import Watch
from penstock.core.scaling.variants.mixed import LearnedVariant

# Format 10 had no start-up times of pods that fetch their model; it is still read.
VERSION: Literal[11] = 11
# Relative differences below it are noise of the same load.
NOTABLE_SHARE = 0.15


@dataclass(frozen=True, slots=True)
class Learned:
    """Learned state of one service."""

    version: Literal[10, 11]
    watch: Watch  # model of the iteration time
    start_ups_s: tuple[float, ...]  # of the last pods
    counted: frozenset[str]  # names of the pods that started already
    # prompt to attended: means of the requests
    prompt: Mean
    output: Mean
    miss: Mean
    held: Mean
    answered: Mean
    attended: Mean
    errors: Errors  # of the forecasts
    outcomes: Outcomes  # late requests
    correction: float  # multiple of the need
    # Learned state by variant; empty without variants
    known: Mapping[str, LearnedVariant] = field(default_factory=dict)
    # Start-up times of the last pods that fetched their model, and whether the last pod did
    cold_start_ups_s: tuple[float, ...] = ()
    is_cold: bool = False

    @classmethod
    def of(cls, state: ObjectivesState) -> "Learned":
        traffic = state.traffic
        return cls(
            version=VERSION,
            watch=state.watch.stored(),
            start_ups_s=state.startup.times_s,
            counted=state.startup.seen,
            prompt=traffic.prompt,
            output=traffic.output,
            miss=traffic.miss,
            held=traffic.held,
            answered=traffic.answered,
            attended=traffic.attended,
            errors=state.forecast.errors,
            outcomes=state.outcomes,
            correction=state.correction.factor,
            known={name: each.stored() for name, each in state.known.items()},
            cold_start_ups_s=state.startup.cold_times_s,
            is_cold=state.startup.is_cold,
        )

    def restored(self, fresh: ObjectivesState) -> ObjectivesState:
        """The state of a rule that knows this and has observed nothing yet."""
        return replace(
            fresh,
            watch=self.watch,
            startup=self._startup(fresh.startup.prior_s),
            traffic=Traffic(
                self.prompt, self.output, self.miss, self.held, self.answered, self.attended
            ),
            forecast=Forecast(errors=self.errors),
            outcomes=self.outcomes,
            correction=Correction(self.correction),
            known=self.known,
        )

    def _startup(self, prior_s: float) -> StartUp:
        return StartUp(prior_s, self.start_ups_s, self.counted, self.cold_start_ups_s, self.is_cold)

    def is_notable(self, kept: "Learned | None", *, is_idle: bool) -> bool:
        """Whether it differs enough from the stored `kept` to be written.

        Errors of the forecasts of an idle service change for a while; that alone is not written.
        """
        if kept is None:
            return any(any(starts) or fit.is_measured for fit, starts in self._fitted())
        if self.known.keys() != kept.known.keys():
            return True
        pairs = [
            *(
                (fit.model.time_s(*TYPICAL), old.model.time_s(*TYPICAL))
                for (fit, _), (old, _) in zip(self._fitted(), kept._fitted(), strict=True)
            ),
            (self.prompt.value, kept.prompt.value),
            (self.output.value, kept.output.value),
            (self.correction, kept.correction),
        ]
        if not is_idle:
            errors, before = self.errors, kept.errors
            pairs.append((errors.watched_s, before.watched_s))
            pairs += [(errors.load, before.load), (errors.peak, before.peak)]
        differs = any(abs(new - old) > NOTABLE_SHARE * old for new, old in pairs)
        starts, known = ([each for _, each in them._fitted()] for them in (self, kept))
        return differs or starts != known

    def _fitted(self) -> list[tuple[Fit, tuple[tuple[float, ...], ...]]]:
        """Iteration times of each kind of engine, and start-up times of warm and cold ones."""
        if not self.known:
            return [(self.watch.fit, (self.start_ups_s, self.cold_start_ups_s))]
        return [
            (each.fit, (each.startup.times_s, each.startup.cold_times_s))
            for _, each in sorted(self.known.items())
        ]


def to_record(learned: Learned) -> dict[str, Any]:
    record: dict[str, Any] = serialize(learned)
    return record


def from_record(record: object) -> Learned | None:
    """Read a record; None if it is of another version or invalid, so that all is learned anew."""
    try:
        learned = deserialize(Learned, record)
    except DecodeError:
        return None
    is_alike = _shape(learned.errors) == _shape(Errors())
    fits = [learned.watch.fit, *(each.fit for each in learned.known.values())]
    is_alike = is_alike and all(_shape(fit.covariance) == _SQUARE for fit in fits)
    return learned if is_alike else None


def _shape(value: object) -> object:
    """Nested lengths of the tuples in a value."""
    if is_dataclass(value):
        return tuple(_shape(getattr(value, f.name)) for f in fields(value))
    return tuple(_shape(each) for each in value) if isinstance(value, tuple) else None


_SQUARE = ((None,) * NUM_TERMS,) * NUM_TERMS
