"""Tries other loads and settings on a decision of a service with objectives."""

import math
import sys
from collections.abc import Iterator
from dataclasses import replace

from penstock.core.formats.quantity import parse_duration_s
from penstock.core.scaling.by_objectives.tick import Settings, Tick
from penstock.core.scaling.changes import (
    Change,
    bounds_to_try,
    changed_bounds,
    numbers,
    refuse_unknown,
)
from penstock.core.scaling.delays import ScaleDownWindow, ScaleUpDelay
from penstock.core.scaling.rule import Decision
from penstock.core.scaling.signals import EngineReading, GatewayReading, Observation
from penstock.core.spec.objectives import Objectives

# Loads that are tried, as multiples of the present one, until the number changes.
MORE = tuple(1.1**step for step in range(1, 30))
LESS = tuple(0.9**step for step in range(1, 30))
# Time for which a tried load counts as needed, in seconds: longer than any scale-up delay.
LASTED_S = 3600.0

SETTINGS = ("minReplicas", "maxReplicas", "ttft", "tpot", "attainment", "scaleDownDelay")


def with_settings(settings: Settings, given: dict[str, str]) -> Settings:
    """Change settings by their names in the YAML. Raises ValueError for what the API would refuse."""
    refuse_unknown(given, SETTINGS)
    objectives, rule = settings.objectives, settings.rule
    bounds = changed_bounds(settings.bounds, given)
    delay = given.get("scaleDownDelay")
    objectives = Objectives(
        parse_duration_s(given["ttft"]) if "ttft" in given else objectives.ttft_s,
        parse_duration_s(given["tpot"]) if "tpot" in given else objectives.tpot_s,
        _fraction(given, "attainment", objectives.attainment),
    )
    if not (objectives.ttft_s > 0 and objectives.tpot_s > 0 and 0.5 <= objectives.attainment < 1):
        raise ValueError("ttft and tpot must not be zero, attainment at least 0.5 and below 1")
    rule = rule if delay is None else replace(rule, calm_s=parse_duration_s(delay))
    return replace(settings, objectives=objectives, bounds=bounds, rule=rule)


def _fraction(given: dict[str, str], name: str, default: float) -> float:
    """The setting as a number; the default if it is not given. Raises ValueError."""
    try:
        return float(given.get(name, default))
    except ValueError as error:
        raise ValueError(f"{name} must be a number, not {given[name]!r}") from error


def without_scale_up_delay(tick: Tick) -> Tick:
    """The tick as if more replicas had been needed for longer than the scale-up delay."""
    lasted = ScaleUpDelay(tick.seen.now_s - LASTED_S, least=sys.maxsize)
    return replace(tick, state=replace(tick.state, up=lasted))


def under_load(tick: Tick, factor: float) -> Decision:
    """Scale all arrivals so far, and what waits, by `factor`, at the same times."""
    state = without_scale_up_delay(tick).state
    readings = state.readings
    engines = {pod: _with_backlog(engine, factor) for pod, engine in readings.engines.items()}
    state = replace(
        state,
        readings=replace(readings, engines=engines),
        load=state.load.scaled(factor),
        forecast=state.forecast.scaled(factor),
        backlog=state.backlog.scaled(factor),
        needs=ScaleDownWindow(since_s=-math.inf),
        grew_s=None,
    )
    seen = _scaled(tick.seen, readings.gateway, factor)
    return replace(tick, state=state, seen=seen).decide_again(with_settings(tick.settings, {}))


def _scaled(seen: Observation, last: GatewayReading | None, factor: float) -> Observation:
    """The observation if `factor` times as much had arrived since the last one, and waited."""
    pods = (
        replace(pod, reading=_with_backlog(pod.reading, factor))
        if isinstance(pod.reading, EngineReading)
        else pod
        for pod in seen.pods
    )
    seen, gateway = replace(seen, pods=tuple(pods)), seen.gateway
    if not isinstance(gateway, GatewayReading) or last is None:
        return seen
    came = max(0, gateway.arrivals - last.arrivals)
    tokens = max(0, gateway.prompt_tokens - last.prompt_tokens)
    scaled = replace(
        gateway,
        queued=math.ceil(factor * gateway.queued),
        queued_prompt_tokens=math.ceil(factor * gateway.queued_prompt_tokens),
        arrivals=last.arrivals + round(factor * came),
        prompt_tokens=last.prompt_tokens + round(factor * tokens),
    )
    return replace(seen, gateway=scaled)


def _with_backlog(engine: EngineReading, factor: float) -> EngineReading:
    """The metrics if `factor` times as much had waited at the engine."""
    return replace(
        engine,
        waiting=math.ceil(factor * engine.waiting),
        prefill_tokens_pending=math.ceil(factor * engine.prefill_tokens_pending),
    )


def loads_that_change_decision(tick: Tick) -> Iterator[Change]:
    """The smallest larger load, and the largest smaller one, under which the number is another.

    The delays of scale-up and scale-down count as over.
    """
    before = numbers(under_load(tick, 1.0))
    for factors, word in ((MORE, "more"), (LESS, "less")):
        for factor in factors:
            decision = under_load(tick, factor)
            if numbers(decision) != before:
                yield Change(f"{abs(factor - 1):.0%} {word} load", decision)
                break


def settings_that_change_decision(tick: Tick) -> Iterator[Change]:
    """Try each setting at half and twice its value; replica bounds by one."""
    tick = without_scale_up_delay(tick)
    settings = tick.settings
    objectives = settings.objectives
    tried = [
        *bounds_to_try(settings.bounds),
        *_times_to_try("ttft", objectives.ttft_s, is_set=objectives.has_ttft),
        *_times_to_try("tpot", objectives.tpot_s, is_set=objectives.has_tpot),
        *({"attainment": f"{1 - part * (1 - objectives.attainment):.5g}"} for part in (0.1, 10)),
    ]
    before = numbers(tick.decide_again(with_settings(settings, {})))
    for given in tried:
        try:
            decision = tick.decide_again(with_settings(settings, given))
        except ValueError:  # outside of the bounds of the setting
            continue
        if numbers(decision) != before:
            yield Change(" ".join(f"{k}={v}" for k, v in given.items()), decision)


def _times_to_try(name: str, objective_s: float, *, is_set: bool) -> list[dict[str, str]]:
    if not is_set:
        return []
    return [{name: f"{round(1000 * part * objective_s)}ms"} for part in (0.5, 2)]
