"""State of a canary's judge: its tests, with the evidence so far, and what they have in common."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from penstock.core.canary.canary_test import CanaryTest
from penstock.core.canary.compared_metrics import ComparedMetrics, StreamedLatency
from penstock.core.canary.counts import NONE, Counts
from penstock.core.canary.evidence import NO_HISTORY, Block, History
from penstock.core.canary.warmup import WarmUp
from penstock.core.spec.canary import CanarySpec


@dataclass(frozen=True, slots=True)
class JudgeState(ComparedMetrics):
    """State of the judge. Field names are stored."""

    canary_empty: Counts
    control_empty: Counts
    warm_up: WarmUp
    judged_s: float  # seconds with requests on both sides; only these count towards maxDuration
    weight: float  # earned share of traffic

    @classmethod
    def begin(cls, spec: CanarySpec, history: History = NO_HISTORY) -> Self:
        """The state before the first block. history: baseline error counts of stable."""
        types: dict[str, Any] = {each.name: each.type for each in fields(cls)}
        tests = {
            name: kind.begin(spec, history)
            for name, kind in types.items()
            if issubclass(kind, CanaryTest)
        }
        return cls(
            **tests,
            canary_empty=NONE,
            control_empty=NONE,
            warm_up=WarmUp(),
            judged_s=0.0,
            weight=spec.min_weight,
        )

    def add(self, block: Block) -> Self:
        """Add a block, which has requests on both sides, to all tests."""
        canary, control = block.canary, block.control
        tests: dict[str, Any] = {
            name: test.add_block(block)
            for name, test in self.tests.items()
            if self.warm_up.is_over or not test.waits_for_warm_up
        }
        return replace(
            self,
            **tests,
            canary_empty=self.canary_empty.add(Counts(canary.requests, canary.empty_outputs)),
            control_empty=self.control_empty.add(Counts(control.requests, control.empty_outputs)),
            warm_up=self.warm_up.add(block),
            judged_s=self.judged_s + block.length_s,
        )

    @property
    def tests(self) -> Mapping[str, CanaryTest]:
        """All tests, by field."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: each for name, each in values.items() if isinstance(each, CanaryTest)}

    @property
    def stakes(self) -> Mapping[str, float]:
        """Initial wealth of each test, by field. They add up to 1.

        While no answer of the control was streamed, the times of whole answers have the stakes of streamed
        latencies, which have no data. Else a canary ten times as slow kept its share for an hour.
        """
        tests = self.tests
        stakes = {name: test.stake for name, test in tests.items()}
        if not self.streamed:
            idle = [name for name, test in tests.items() if isinstance(test, StreamedLatency)]
            stakes["overall"] += math.fsum(stakes[name] for name in idle)
            stakes.update(dict.fromkeys(idle, 0.0))
        total = math.fsum(stakes.values())
        return {name: stake / total for name, stake in stakes.items()}

    @property
    def streamed(self) -> tuple[StreamedLatency, ...]:
        """The tests of streams for which the control has had a value."""
        streamed = (test for test in self.tests.values() if isinstance(test, StreamedLatency))
        return tuple(test for test in streamed if not test.is_empty)
