"""Tries other loads and settings on a decision, whichever rule made it."""

from collections.abc import Iterator
from dataclasses import replace

from penstock.core.scaling.by_kv import what_if as what_if_by_kv
from penstock.core.scaling.by_kv.tick import KvTick
from penstock.core.scaling.by_objectives import what_if as what_if_by_objectives
from penstock.core.scaling.changes import Change
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
    """The nearest loads, and single settings, that lead to another number of replicas."""
    if isinstance(tick, KvTick):
        yield from what_if_by_kv.loads_that_change_decision(tick)
        yield from what_if_by_kv.settings_that_change_decision(tick)
    else:
        yield from what_if_by_objectives.loads_that_change_decision(tick)
        yield from what_if_by_objectives.settings_that_change_decision(tick)
