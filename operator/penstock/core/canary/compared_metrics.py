"""The metrics in which a canary is compared with its control: one test for each.

Stakes: TTFT has the largest variance and errors are rarest, so both get most. TPOT has a third of TTFT's
variance and recovers from a small stake within a minute.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

from penstock.core.canary.arm import Arm
from penstock.core.canary.bins import Binned
from penstock.core.canary.canary_test import ProportionTest, ShiftTest
from penstock.core.canary.counts import Counts
from penstock.core.canary.errors import Errors
from penstock.core.canary.evidence import Block, History
from penstock.core.canary.shift import CONCURRENCIES, QUEUE_LENGTHS
from penstock.core.canary.violations import Violations
from penstock.core.spec.canary import CanarySpec

# Tolerance of TTFT with queues, in multiples of the tolerance. Queues move it by more than the tolerance,
# and the comparison at equal load is much more precise.
QUEUE_TOLERANCES = 3.0


@dataclass(frozen=True, slots=True)
class StreamedLatency(ShiftTest):
    """A latency at equal load. Only streams have one; it is not awaited if the control never had any."""

    waits_for_warm_up: ClassVar = True

    @property
    def is_awaited(self) -> bool:
        return not self.is_empty


@dataclass(frozen=True, slots=True)
class Ttft(StreamedLatency):
    """TTFT, compared at equal numbers of requests ahead."""

    metric: ClassVar = "TTFT"
    stake: ClassVar = 0.50
    correlated: ClassVar = QUEUE_LENGTHS

    @staticmethod
    def values(arm: Arm) -> Binned:
        return arm.ttft


@dataclass(frozen=True, slots=True)
class TtftWithQueues(ShiftTest):
    """TTFT with queueing in the gateway and the engine; of an answer that is not streamed its whole time."""

    metric: ClassVar = "TTFT with queues"
    # Gets the stakes of TTFT and TPOT while the control streams nothing (judge_state.stakes).
    stake: ClassVar = 0.0
    waits_for_warm_up: ClassVar = True
    tolerances: ClassVar = QUEUE_TOLERANCES

    @staticmethod
    def values(arm: Arm) -> Binned:
        return (arm.overall,)

    @classmethod
    def begin(cls, spec: CanarySpec, history: History) -> Self:
        return cls(assumed=0.0)  # queues dominate the variance, so there is no prior for it

    def allowed_shift(self, spec: CanarySpec) -> float:
        return spec.log_tolerance  # smaller regressions are tested at equal load


@dataclass(frozen=True, slots=True)
class Tpot(StreamedLatency):
    """TPOT of answers of two tokens or more, compared at equal numbers of concurrent requests."""

    metric: ClassVar = "TPOT"
    stake: ClassVar = 0.04
    correlated: ClassVar = CONCURRENCIES

    @staticmethod
    def values(arm: Arm) -> Binned:
        return arm.tpot


@dataclass(frozen=True, slots=True)
class FailedRequests(Errors, ProportionTest):
    """The share of requests that failed, compared also with stable's last hour."""

    metric: ClassVar = "Errors"
    stake: ClassVar = 0.36
    waits_for_warm_up: ClassVar = False

    @classmethod
    def begin(cls, spec: CanarySpec, history: History) -> Self:
        return cls.with_history(spec.error_tolerance, history)

    def add_block(self, block: Block) -> Self:
        canary, control = block.canary, block.control
        return self.add(
            block.length_s,
            Counts(canary.requests, canary.errors),
            Counts(control.requests, control.errors),
        )


@dataclass(frozen=True, slots=True)
class MissedObjectives(Violations, ProportionTest):
    """The share of requests that missed an objective, failed ones among them."""

    metric: ClassVar = "Objective violations"
    stake: ClassVar = 0.06
    waits_for_warm_up: ClassVar = True

    @classmethod
    def begin(cls, spec: CanarySpec, history: History) -> Self:
        return cls(spec.violation_tolerance)

    def add_block(self, block: Block) -> Self:
        canary, control = block.canary, block.control
        return self.add(
            block.length_s,
            Counts(canary.requests, canary.violations),
            Counts(control.requests, control.violations),
            canary.missed,
            control.missed,
        )


@dataclass(frozen=True, slots=True)
class OutputLength(ShiftTest):
    """Number of output tokens.

    A new model may answer at another length: only a drift beyond the tolerance, up or down, counts against
    it, and acceptance does not wait for this test.
    """

    metric: ClassVar = "Output length"
    stake: ClassVar = 0.04
    waits_for_warm_up: ClassVar = False

    @staticmethod
    def values(arm: Arm) -> Binned:
        return (arm.output,)

    @property
    def is_awaited(self) -> bool:
        return False

    def evaluate(self, spec: CanarySpec) -> tuple[float, bool]:
        scale = self.scale(spec)
        return self.estimate().two_sided_e_value(scale, scale), False


@dataclass(frozen=True, slots=True)
class ComparedMetrics:
    """The tests of a canary, with the evidence so far. Field names are stored.

    Each is evaluated, explained, shown in the status and stored, in this order.
    """

    ttft: Ttft
    overall: TtftWithQueues
    tpot: Tpot
    errors: FailedRequests
    violations: MissedObjectives
    output: OutputLength
