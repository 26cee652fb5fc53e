"""A sequential test of one metric of a canary, and what is common to the tests of shifts and of shares."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

from penstock.core.canary.arm import Arm
from penstock.core.canary.bins import Binned
from penstock.core.canary.estimate import Estimate, relative_change
from penstock.core.canary.evidence import Block, History
from penstock.core.canary.proportions import ProportionEstimate
from penstock.core.canary.shift import UNCORRELATED, Shift
from penstock.core.spec.canary import CanarySpec


@dataclass(frozen=True, slots=True)
class Effect:
    """The increase of a metric on the canary with its confidence bounds; None if a bound is not known.

    Relative for latencies and lengths, a difference for shares of requests. canary_n, control_n: requests.
    """

    increase: float
    low: float | None
    high: float | None
    canary_n: int
    control_n: int


class CanaryTest(ABC):
    """A sequential test of one metric: whether the canary is worse than its control.

    A test is a frozen dataclass. Its fields are the evidence so far; their names are stored.
    """

    __slots__ = ()

    metric: ClassVar[str]
    """Name of the metric in reasons and in the status."""
    stake: ClassVar[float]
    """Initial wealth in the combined e-value, in proportion to the stakes of the other tests."""
    waits_for_warm_up: ClassVar[bool]
    """Whether only blocks after the canary's warm-up count."""

    @classmethod
    @abstractmethod
    def begin(cls, spec: CanarySpec, history: History) -> Self:
        """The test before the first block. history: baseline error counts of stable."""

    @abstractmethod
    def add_block(self, block: Block) -> Self:
        """Add a block with requests on both sides."""

    @property
    def is_awaited(self) -> bool:
        """Whether acceptance waits until the regression is shown to be within its tolerance."""
        return True

    @abstractmethod
    def evaluate(self, spec: CanarySpec) -> tuple[float, bool]:
        """The e-value against "the canary is no worse", and whether a regression is shown to be tolerable."""

    @abstractmethod
    def passes_final_analysis(self, spec: CanarySpec) -> bool:
        """Whether the regression is within its tolerance in the final analysis at maxDuration.

        There is a single analysis at a planned time, so bounds of fixed-sample tests suffice.
        """

    @abstractmethod
    def effect(self, spec: CanarySpec) -> Effect:
        """The increase of the metric, for the status."""

    @abstractmethod
    def describe(self, spec: CanarySpec) -> str:
        """A sentence on the current result."""


@dataclass(frozen=True, slots=True)
class ShiftTest(Shift, CanaryTest):
    """A test of the shift of a latency or a length.

    tolerances: the tolerance of this metric, in multiples of the user's. correlated: as in Shift.add.
    """

    tolerances: ClassVar[float] = 1.0
    correlated: ClassVar[tuple[float, ...]] = UNCORRELATED

    @staticmethod
    @abstractmethod
    def values(arm: Arm) -> Binned:
        """The metric's values of one arm, by bin."""

    @classmethod
    def begin(cls, spec: CanarySpec, history: History) -> Self:
        return cls()

    def add_block(self, block: Block) -> Self:
        canary, control = self.values(block.canary), self.values(block.control)
        return self.add(block.length_s, canary, control, self.correlated)

    def evaluate(self, spec: CanarySpec) -> tuple[float, bool]:
        estimate, scale = self.estimate(), self.scale(spec)
        is_within = _upper_bound(estimate, scale, spec.alpha) < scale
        return estimate.e_value(scale, self.allowed_shift(spec)), is_within

    def passes_final_analysis(self, spec: CanarySpec) -> bool:
        return self.timeout_bound() < self.scale(spec)

    def effect(self, spec: CanarySpec) -> Effect:
        estimate = self.estimate()
        radius = estimate.radius(spec.log_tolerance, spec.alpha)
        is_bounded = math.isfinite(radius)
        return Effect(
            relative_change(estimate.difference),
            relative_change(estimate.difference - radius) if is_bounded else None,
            relative_change(estimate.difference + radius) if is_bounded else None,
            estimate.canary_n,
            estimate.control_n,
        )

    def describe(self, spec: CanarySpec) -> str:
        effect = self.effect(spec)
        if effect.low is None or effect.high is None:
            return f"{self.metric}: too few requests to compare yet"
        return (
            f"{self.metric} of the canary is {_percent(effect.increase)} against its control "
            f"(between {_percent(effect.low)} and {_percent(effect.high)}) over "
            f"{effect.canary_n:,} and {effect.control_n:,} requests"
        )

    def scale(self, spec: CanarySpec) -> float:
        """The tolerance of this metric, in logs."""
        return self.tolerances * spec.log_tolerance

    def allowed_shift(self, spec: CanarySpec) -> float:
        """The largest shift that agrees with the null hypothesis, in logs."""
        return 0.0

    def progress(self, spec: CanarySpec) -> float:
        """Fraction of the information that is needed to show that the shift is below its tolerance.

        A bound shrinks with the square root of the information, so its inverse square measures information.
        """
        scale = self.scale(spec)
        bound = _upper_bound(self.estimate(), scale, spec.alpha)
        return 1.0 if bound <= scale else (scale / bound) ** 2


class ProportionTest(CanaryTest):
    """A test of the share of requests with an event. alpha: of the service's settings."""

    __slots__ = ()

    @abstractmethod
    def e_value(self) -> float:
        """E-value against "the canary's share is not larger"."""

    @abstractmethod
    def is_within(self, alpha: float) -> bool:
        """Whether the increase is shown to be below the tolerance, at any time, at level alpha."""

    @abstractmethod
    def is_within_at_timeout(self) -> bool:
        """Whether the increase is below the tolerance in the final analysis."""

    @abstractmethod
    def reading(self, alpha: float) -> ProportionEstimate:
        """The estimated increase of the share with its upper bound."""

    def evaluate(self, spec: CanarySpec) -> tuple[float, bool]:
        return self.e_value(), self.is_within(spec.alpha)

    def passes_final_analysis(self, spec: CanarySpec) -> bool:
        return self.is_within_at_timeout()

    def effect(self, spec: CanarySpec) -> Effect:
        seen = self.reading(spec.alpha)
        return Effect(seen.difference, None, seen.high, seen.canary.requests, seen.control.requests)

    def describe(self, spec: CanarySpec) -> str:
        seen = self.reading(spec.alpha)
        return (
            f"{self.metric}: {seen.canary.events:,} of {seen.canary.requests:,} requests to the canary "
            f"and {seen.control.events:,} of {seen.control.requests:,} to its control, "
            f"{100 * seen.difference:+.2f} points (at most {100 * seen.high:+.2f})"
        )


def _percent(increase: float) -> str:
    return f"{100 * increase:+.1f} %"


def _upper_bound(estimate: Estimate, scale: float, alpha: float) -> float:
    return estimate.difference + estimate.radius(scale, alpha)
