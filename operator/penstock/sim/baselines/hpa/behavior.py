"""HPA v2 `behavior`: stabilization windows and rate limits of a recommendation.

Source: kubernetes pkg/controller/podautoscaler/horizontal.go.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from penstock.sim.baselines import rounding


@dataclass(frozen=True, slots=True)
class Policy:
    """Rate limit: `value` replicas, or percent of those at the start of the period, per period_s."""

    kind: Literal["Pods", "Percent"]
    value: float
    period_s: float


@dataclass(frozen=True, slots=True)
class Direction:
    """Behavior in one direction, by the policy that allows most.

    window_s: stabilization window over recommendations.
    """

    policies: tuple[Policy, ...]
    window_s: float


@dataclass(frozen=True, slots=True)
class Behavior:
    """Behavior in both directions, with the defaults of Kubernetes."""

    up: Direction = Direction((Policy("Pods", 4, 15), Policy("Percent", 100, 15)), window_s=0)
    down: Direction = Direction((Policy("Percent", 100, 15),), window_s=300)

    @property
    def memory_s(self) -> float:
        """Age at which a recommendation or a change no longer matters."""
        periods = [p.period_s for side in (self.up, self.down) for p in side.policies]
        return max(self.up.window_s, self.down.window_s, *periods)


DEFAULT = Behavior()


class Stamped(NamedTuple):
    """Timed recommendation, or timed signed change of replicas."""

    at_s: float
    replicas: int


def stabilized(
    behavior: Behavior, current: int, wanted: int, past: tuple[Stamped, ...], now_s: float
) -> int:
    """Bound a recommendation by the lowest of the up window and the highest of the down window."""
    lowest = min([wanted, *_in_window(past, now_s, behavior.up.window_s)])
    highest = max([wanted, *_in_window(past, now_s, behavior.down.window_s)])
    return min(max(current, lowest), highest)


def limited(
    behavior: Behavior, current: int, wanted: int, changes: tuple[Stamped, ...], now_s: float
) -> int:
    """Move towards `wanted` as far as the policies allow now."""
    if wanted > current:
        return min(wanted, max(current, _limit(behavior.up, current, changes, now_s, sign=1)))
    return max(wanted, min(current, _limit(behavior.down, current, changes, now_s, sign=-1)))


def _limit(
    side: Direction, current: int, changes: tuple[Stamped, ...], now_s: float, sign: int
) -> int:
    ends = []
    for policy in side.policies:
        start = current - sum(_in_window(changes, now_s, policy.period_s))
        ends.append(_end(policy, start, sign))
    return max(ends) if sign > 0 else min(ends)


def _end(policy: Policy, start: int, sign: int) -> int:
    if policy.kind == "Pods":
        return start + sign * int(policy.value)
    end = start * (1 + sign * policy.value / 100)
    return rounding.up(end) if sign > 0 else rounding.down(end)


def _in_window(past: tuple[Stamped, ...], now_s: float, window_s: float) -> list[int]:
    return [s.replicas for s in past if s.at_s > now_s - window_s]
