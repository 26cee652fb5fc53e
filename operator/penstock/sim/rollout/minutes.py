"""Draws a canary's traffic minute by minute: evidence blocks and latencies of requests."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.core.canary.arm import Arm
from penstock.core.canary.evidence import Block, History
from penstock.sim.rollout.arms import arms_of
from penstock.sim.rollout.growth import Growth
from penstock.sim.rollout.requests import Floats, Requests, Source
from penstock.sim.rollout.scenario import Scenario

BLOCK_S = 10.0
# Seconds drawn at once. Most canaries are decided within a few spans, and later ones are never drawn.
SPAN_S = 600.0
OBJECTIVE_QUANTILE = 0.99
# The judge does not count time without requests. Limit, as a multiple of the canary's maximum duration.
LONGEST = 2


@dataclass(frozen=True, slots=True)
class Objectives:
    """99th percentiles of log TTFT and log TPOT of stable; also the thresholds of the gates."""

    ttft: float
    tpot: float


@dataclass(frozen=True, slots=True)
class SideMinute:
    """Requests of a side in a minute. ttft_s, tpot_s: of successful requests."""

    requests: int
    errors: int
    ttft_s: Floats
    tpot_s: Floats


@dataclass(frozen=True, slots=True)
class Minute:
    """Minute of a canary: evidence blocks, and each side's requests."""

    index: int
    blocks: tuple[Block, ...]
    canary: SideMinute
    control: SideMinute


def objectives(scenario: Scenario) -> Objectives:
    """Estimate the objectives from at least 200,000 requests of stable, with a fixed seed."""
    source = Source.of(scenario, False, 0.0, np.random.default_rng(7))
    seconds = max(LOAD_PERIODS_S, 200_000 / scenario.control_rate)
    seen = source.span(0.0, LOAD_PERIODS_S * math.ceil(seconds / LOAD_PERIODS_S))
    return Objectives(
        float(np.quantile(seen.ttft, OBJECTIVE_QUANTILE)),
        float(np.quantile(seen.tpot, OBJECTIVE_QUANTILE)),
    )


LOAD_PERIODS_S = 1800.0


def history(scenario: Scenario, draw: np.random.Generator) -> History:
    """Draw stable's error counts before the canary."""
    requests = round(scenario.control_rate * 3600 * scenario.history_hours)
    return History(requests, int(draw.binomial(requests, scenario.error_share)))


def live(
    scenario: Scenario, limits: Objectives, draw: np.random.Generator, growth: Growth
) -> Iterator[Minute]:
    """Draw the minutes of a canary. A change of `growth` takes effect in the next minute."""
    phase = float(draw.uniform(0, 2 * math.pi))
    canary = Source.of(scenario, True, phase, draw, growth)
    control = Source.of(scenario, False, phase, draw, growth)
    span_s = 60.0 if scenario.grows else SPAN_S
    end_s = LONGEST * scenario.hours * 3600
    start_s = 0.0
    while start_s < end_s:
        stop_s = min(end_s, start_s + span_s)
        seen = canary.span(start_s, stop_s), control.span(start_s, stop_s)
        arms = [_arms(side, start_s, stop_s, limits, scenario.streams) for side in seen]
        blocks = [Block(length_s=BLOCK_S, canary=a, control=b) for a, b in zip(*arms, strict=True)]
        per_minute = round(60 / BLOCK_S)
        for index in range(0, len(blocks), per_minute):
            from_s = start_s + index * BLOCK_S
            yield Minute(
                round(from_s / 60),
                tuple(blocks[index : index + per_minute]),
                _minute(seen[0], from_s),
                _minute(seen[1], from_s),
            )
        start_s = stop_s


def _minute(side: Requests, from_s: float) -> SideMinute:
    low, high = np.searchsorted(side.at_s, (from_s, from_s + 60))
    failed = side.failed[low:high]
    return SideMinute(
        int(high - low),
        int(failed.sum()),
        np.exp(side.ttft[low:high][~failed]),
        np.exp(side.tpot[low:high][~failed]),
    )


def _arms(
    side: Requests, start_s: float, stop_s: float, limits: Objectives, streams: bool
) -> list[Arm]:
    """Evidence of one side, one Arm per block of the span. streams: whether answers are streamed."""
    blocks = round((stop_s - start_s) / BLOCK_S)
    block = np.minimum(((side.at_s - start_s) / BLOCK_S).astype(np.int64), blocks - 1)
    violated = side.failed | (side.ttft > limits.ttft) | (side.tpot > limits.tpot)
    return arms_of(side, violated, block, blocks, streams=streams)
