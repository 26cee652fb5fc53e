"""Recorded decisions on services without objectives."""

from dataclasses import dataclass, replace

from penstock.core.scaling.by_kv.rule import KvRule
from penstock.core.scaling.delays import ScaleDownDelay
from penstock.core.scaling.rule import Bounds, Decision
from penstock.core.scaling.signals import Observation


@dataclass(frozen=True, slots=True)
class KvSettings:
    """Settings of a decision on a service without objectives."""

    rule: KvRule
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class KvTick:
    """Recorded decision on a service without objectives, with its inputs. state: before the decision."""

    settings: KvSettings
    state: ScaleDownDelay
    seen: Observation
    decision: Decision

    def step(self) -> tuple[Decision, ScaleDownDelay]:
        """Decide again; also returns the state after the decision."""
        return self.settings.rule.decide(None, self.settings.bounds, self.seen, self.state)

    def decide_again(self, settings: KvSettings | None = None) -> Decision:
        """Decide again, with other settings if given."""
        return replace(self, settings=settings or self.settings).step()[0]
