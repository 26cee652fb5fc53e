"""Tries other loads and settings on a decision, whichever rule made it."""

from collections.abc import Iterator
from dataclasses import replace

from penstock.core.scaling.by_kv import what_if as what_if_by_kv
from penstock.core.scaling.by_kv.tick import KvTick
from penstock.core.scaling.by_objectives import what_if as what_if_by_objectives
from penstock.core.scaling.changes import Change
from penstock.core.scaling.idle import IdleDecision
from penstock.core.scaling.recording import AnyTick
from penstock.core.scaling.rule import Decision


def with_settings(tick: AnyTick, given: dict[str, str]) -> Decision:
    """Decide with settings changed, by their names in the YAML. Raises ValueError for a wrong one.

    As if the load had lasted for longer than the scale-up delay, and without objectives also for longer than
    `scaleDownDelay`.
    """
    if isinstance(tick, KvTick):
        settings = what_if_by_kv.with_settings(tick.settings, given)
        return what_if_by_kv.decide_settled(replace(tick, settings=settings))
    tick = what_if_by_objectives.without_scale_up_delay(tick)
    return tick.decide_again(what_if_by_objectives.with_settings(tick.settings, given))


def changes(tick: AnyTick) -> Iterator[Change]:
    """The nearest loads, and single settings, that lead to another number of replicas.

    At zero it is any request.
    """
    idle = tick.settings.bounds.idle
    if idle is not None and idle.is_zero:
        yield Change("a request", _woken(tick, idle))
        return
    if isinstance(tick, KvTick):
        yield from what_if_by_kv.loads_that_change_decision(tick)
        yield from what_if_by_kv.settings_that_change_decision(tick)
    else:
        yield from what_if_by_objectives.loads_that_change_decision(tick)
        yield from what_if_by_objectives.settings_that_change_decision(tick)


def _woken(tick: AnyTick, idle: IdleDecision) -> Decision:
    """The decision if a request came. idle: the decision that the service is at zero."""
    cause = f"a request came; an engine is expected in {idle.startup_s} s"
    bounds = replace(tick.settings.bounds, idle=IdleDecision("Wake", cause, idle.startup_s))
    if isinstance(tick, KvTick):
        return tick.decide_again(replace(tick.settings, bounds=bounds))
    return tick.decide_again(replace(tick.settings, bounds=bounds))
