"""Tries other loads and settings on a decision of a service without objectives.

A change counts as if it had lasted longer than `scaleDownDelay`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from penstock.core.formats.quantity import parse_duration_s
from penstock.core.scaling.by_kv.tick import KvSettings, KvTick
from penstock.core.scaling.changes import (
    Change,
    bounds_to_try,
    changed_bounds,
    refuse_unknown,
    whole_number,
)
from penstock.core.scaling.delays import ScaleDownDelay
from penstock.core.scaling.rule import Decision
from penstock.core.scaling.signals import STALE_S, EngineReading, Observation

SETTINGS = ("minReplicas", "maxReplicas", "kvUtilizationPercent", "queueLength", "scaleDownDelay")

# A changed load in words, and the observation with it.
Tried: TypeAlias = tuple[str, Observation]


def with_settings(settings: KvSettings, given: dict[str, str]) -> KvSettings:
    """Change settings by their names in the YAML. Raises ValueError for what the API would refuse."""
    refuse_unknown(given, SETTINGS)
    rule = settings.rule
    percent = whole_number(given, "kvUtilizationPercent", round(100 * rule.kv_utilization_target))
    queue = whole_number(given, "queueLength", rule.queue_length_target)
    if not 10 <= percent <= 95 or queue < 1:
        raise ValueError("kvUtilizationPercent must be 10 to 95, and queueLength at least 1")
    delay = given.get("scaleDownDelay")
    delay_s = rule.scale_down_delay_s if delay is None else parse_duration_s(delay)
    rule = replace(
        rule,
        kv_utilization_target=percent / 100,
        queue_length_target=queue,
        scale_down_delay_s=delay_s,
    )
    return replace(settings, rule=rule, bounds=changed_bounds(settings.bounds, given))


def loads_that_change_decision(tick: KvTick) -> Iterator[Change]:
    """The nearest KV demands and queues, above and below the present ones, with another number.

    First the present load itself, if the number falls once it has lasted for longer than `scaleDownDelay`.
    """
    seen = tick.seen.without_stale(STALE_S)
    if not seen.readings:
        return
    settled = decide_settled(tick)
    if settled.desired != tick.decision.desired:
        yield Change("the present load, for longer than scaleDownDelay", settled)
    for tried in (_larger_demands(tick, seen), _smaller_demands(tick, seen)):
        for what, changed in tried:
            decision = _decide(tick, changed)
            if decision.desired != settled.desired:
                yield Change(what, decision)
                break
    yield from _changes_by_queue(tick, seen, settled.desired)


def settings_that_change_decision(tick: KvTick) -> Iterator[Change]:
    """Settings, one at a time, with another number: targets halved or doubled, bounds one more or less."""
    rule = tick.settings.rule
    percent = 100 * rule.kv_utilization_target
    tried = [
        *bounds_to_try(tick.settings.bounds),
        *({"kvUtilizationPercent": str(round(part * percent))} for part in (0.5, 2)),
        *({"queueLength": str(int(part * rule.queue_length_target))} for part in (0.5, 2)),
    ]
    before = decide_settled(tick).desired
    for given in tried:
        try:
            settings = with_settings(tick.settings, given)
        except ValueError:  # outside of what the API allows
            continue
        decision = decide_settled(replace(tick, settings=settings))
        if decision.desired != before:
            yield Change(" ".join(f"{k}={v}" for k, v in given.items()), decision)


def decide_settled(tick: KvTick) -> Decision:
    """The decision on the tick's load after it has lasted for longer than `scaleDownDelay`."""
    return _decide(tick, tick.seen)


def _decide(tick: KvTick, seen: Observation) -> Decision:
    """Decide as if fewer replicas had been enough for long, if they are enough."""
    settled = ScaleDownDelay(seen.now_s - tick.settings.rule.scale_down_delay_s - 1, seen.now_s)
    return replace(tick, state=settled, seen=seen).decide_again()


def _larger_demands(tick: KvTick, seen: Observation) -> Iterator[Tried]:
    now = _demand(seen)
    for most in _full_replicas(tick, seen):
        if most >= now:
            what = f"KV demand above {most:,} tokens (now {now:,.0f})"
            yield what, _with_demand(seen, most + 1)


def _smaller_demands(tick: KvTick, seen: Observation) -> Iterator[Tried]:
    now = _demand(seen)
    for most in reversed(_full_replicas(tick, seen)):
        if most < now:
            what = f"KV demand of at most {most:,} tokens (now {now:,.0f})"
            yield what, _with_demand(seen, most)


def _full_replicas(tick: KvTick, seen: Observation) -> list[int]:
    """KV demand in tokens that 0, 1, … replicas take at their target, up to maxReplicas."""
    mean_tokens = sum(engine.kv_capacity_tokens for engine in seen.readings) / len(seen.readings)
    each = mean_tokens * tick.settings.rule.kv_utilization_target
    return [int(count * each) for count in range(tick.settings.bounds.max_replicas + 1)]


def _changes_by_queue(tick: KvTick, seen: Observation, desired: int) -> Iterator[Change]:
    """The nearest longer and shorter queues with another number than `desired`."""
    now, running = _waiting(seen), sum(engine.running for engine in seen.readings)
    per_replica = tick.settings.rule.queue_length_target + running + 1
    longest = now + per_replica * (tick.settings.bounds.max_replicas + 1)

    def decision(count: int) -> Decision:
        return _decide(tick, _with_waiting(seen, count))

    for far, word in ((longest, "more"), (0, "fewer")):
        count = _nearest(now, far, lambda count: decision(count).desired != desired)
        if count is not None:
            yield Change(f"{count} or {word} waiting requests (now {now})", decision(count))


def _nearest(near: int, far: int, differs: Callable[[int], bool]) -> int | None:
    """The number nearest to `near` for which `differs` holds, up to `far`; None if it fails there.

    differs: monotone, and false at `near`.
    """
    if near == far or not differs(far):
        return None
    while abs(far - near) > 1:
        middle = (near + far) // 2
        near, far = (near, middle) if differs(middle) else (middle, far)
    return far


def _demand(seen: Observation) -> float:
    return sum(engine.demand_tokens for engine in seen.readings)


def _waiting(seen: Observation) -> int:
    return sum(engine.waiting for engine in seen.readings)


def _with_demand(seen: Observation, tokens: int) -> Observation:
    """The rule counts the sum over engines, so the first one may have all of it."""
    first, *others = (replace(r, kv_usage=0.0, prefill_tokens_pending=0) for r in seen.readings)
    return _with_readings(seen, (replace(first, prefill_tokens_pending=tokens), *others))


def _with_waiting(seen: Observation, count: int) -> Observation:
    first, *others = (replace(reading, waiting=0) for reading in seen.readings)
    return _with_readings(seen, (replace(first, waiting=count), *others))


def _with_readings(seen: Observation, readings: Iterable[EngineReading]) -> Observation:
    """Copy with other readings of the ready engines that have metrics, in their order."""
    names = (pod.name for pod in seen.ready if isinstance(pod.reading, EngineReading))
    changed = dict(zip(names, readings, strict=True))
    pods = (replace(pod, reading=changed.get(pod.name, pod.reading)) for pod in seen.pods)
    return replace(seen, pods=tuple(pods))
