"""Replacing a variant by a cheaper one: only after a long calm, and never while pods start."""

import pytest

from penstock.core.engine_time.iteration import IterationModel
from penstock.core.scaling.by_objectives.rule import ObjectivesRule
from penstock.core.scaling.by_objectives.steps import SWAP_DELAY_S
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import (
    EngineReading,
    GatewayReading,
    Observation,
    PodView,
    attended_tokens,
)
from penstock.core.scaling.variants.mixed import Variant
from penstock.core.spec.objectives import Objectives

MODEL = IterationModel(0.015, 6e-5, 3e-5, 5e-8)
CHEAP = Variant("cheap", MODEL, 2.5, 0, 8)
STRONG = Variant("strong", MODEL.times(0.5), 4.0, 0, 8)
RULE = ObjectivesRule(prior=MODEL, startup_s=100.0, variants=(CHEAP, STRONG))
OBJECTIVES, BOUNDS = Objectives(3.0, 0.1), Bounds(1, 8)
EMPTY = Histogram((1.0,), (0, 0), 0.0)
PROMPT_TOKENS, OUTPUT_TOKENS = 2000, 300
# Two of the cheap ones serve it, and so does one of the strong ones.
RATE = 8.0


def engine(at_s: float, done: int) -> EngineReading:
    return EngineReading(
        at_s=at_s, running=0, waiting=0, kv_usage=0.1, kv_capacity_tokens=300_000,
        prefill_tokens_pending=0, prompt_tokens=done * PROMPT_TOKENS, cached_tokens=0,
        output_tokens=done * OUTPUT_TOKENS, steps=0, finished=done,
        output_tokens_finished=done * OUTPUT_TOKENS, preemptions=0, ttft_s=EMPTY, itl_s=EMPTY,
    )  # fmt: skip


def gateway(at_s: float, arrivals: int) -> GatewayReading:
    return GatewayReading(
        at_s=at_s, queued=0, queued_prompt_tokens=0, in_flight=0, in_flight_prefill_tokens=0,
        oldest_wait_s=0.0, arrivals=arrivals, prompt_tokens=arrivals * PROMPT_TOKENS,
        ended=arrivals, output_tokens=arrivals * OUTPUT_TOKENS,
        attended_tokens=arrivals * attended_tokens(PROMPT_TOKENS, OUTPUT_TOKENS), shed=0, failed=0,
        late=0, ttft_s=Histogram((1.0,), (arrivals, 0), 0.0), tpot_s=EMPTY,
    )  # fmt: skip


def observe(now_s: float, num_starting: int, num_ready: int = 2) -> Observation:
    """Cheap engines that serve RATE requests a second between them."""
    arrivals = int(RATE * now_s)
    ready = [
        PodView(f"cheap-{i}", "Ready", 0.0, 0.0, engine(now_s, arrivals // 2), variant="cheap")
        for i in range(num_ready)
    ]
    starting = [
        PodView(f"new-{i}", "Starting", now_s, None, None, variant="cheap")
        for i in range(num_starting)
    ]
    return Observation(
        now_s,
        (*ready, *starting),
        num_ready,
        gateway(now_s, arrivals),
        by_variant={"cheap": num_ready},
    )


def first_swap_s(starting_until_s: float) -> tuple[float, dict[str, int]] | None:
    """(time, replicas by variant) of the first swap decided within an hour; None if there is none."""
    state = RULE.initial()
    for tick in range(1, 1801):
        now_s = tick * RULE.period_s
        seen = observe(now_s, num_starting=1 if now_s < starting_until_s else 0)
        decision, state = RULE.decide(OBJECTIVES, BOUNDS, seen, state)
        if decision.code == "Swap":
            return now_s, dict(decision.by_variant)
    return None


@pytest.mark.parametrize("starting_until_s", [0.0, 900.0])
def test_a_swap_comes_after_a_long_calm_without_pods_that_start(starting_until_s: float) -> None:
    found = first_swap_s(starting_until_s)
    assert found is not None
    swapped_s, by_variant = found
    calm_since_s = max(0.0, starting_until_s - RULE.period_s)  # the last tick with a start
    assert calm_since_s + SWAP_DELAY_S <= swapped_s < calm_since_s + SWAP_DELAY_S + 120
    assert by_variant == {"cheap": 2, "strong": 1}


def test_nothing_is_swapped_while_pods_start() -> None:
    assert first_swap_s(starting_until_s=4000.0) is None


def test_the_calm_before_a_growth_does_not_count() -> None:
    """The load needs a second engine from 500 s until the rule requests it."""
    state, num_ready, codes = RULE.initial(), 2, {}
    for tick in range(1, 549):
        now_s = tick * RULE.period_s
        num_ready = 1 if now_s == 500.0 else num_ready
        seen = observe(now_s, num_starting=0, num_ready=num_ready)
        decision, state = RULE.decide(OBJECTIVES, BOUNDS, seen, state)
        num_ready = 2 if decision.code == "ScaleUp" else num_ready
        codes[now_s] = decision.code
    grown_s = [at_s for at_s, code in codes.items() if code == "ScaleUp"]
    assert len(grown_s) == 1
    assert 500.0 <= grown_s[0] < 520.0
    assert "Swap" not in codes.values()
