"""End of a canary's warm-up: its cache hits beside those of the control."""

from dataclasses import replace

import numpy as np
import pytest

from penstock.core.canary.arm import NO_REQUESTS
from penstock.core.canary.evidence import Block
from penstock.core.canary.warmup import DECAY, MARGIN, MAX_WARMUP_S, WarmUp


def warm_up_state(canary, control, blocks=1, length_s=10.0):
    state = WarmUp()
    for _ in range(blocks):
        state = state.add(Block(length_s=length_s, canary=canary, control=control))
    return state


@pytest.mark.parametrize(
    ("canary_cached", "is_over"), [(0, False), (399, False), (400, True), (1000, True)]
)
def test_a_cache_is_warm_within_a_margin_of_its_control(canary_cached, is_over):
    """The control finds half of its tokens cached."""
    control = replace(NO_REQUESTS, requests=9, prompt_tokens=9000, cached_tokens=4500)
    canary = replace(NO_REQUESTS, requests=1, prompt_tokens=1000, cached_tokens=canary_cached)
    assert MARGIN == 0.1
    assert warm_up_state(canary, control).is_over is is_over


def test_a_cache_that_nothing_was_asked_of_is_cold():
    """Requests that failed before their prompt was counted."""
    control = replace(NO_REQUESTS, requests=9, prompt_tokens=9000, cached_tokens=4500)
    state = warm_up_state(
        replace(NO_REQUESTS, requests=3), control, blocks=int(MAX_WARMUP_S / 10) - 1
    )
    assert state.canary.share == 0.0
    assert not state.is_over
    assert state.add(
        Block(length_s=10.0, canary=replace(NO_REQUESTS, requests=3), control=control)
    ).is_over
    # On both sides: nothing to wait for.
    assert warm_up_state(replace(NO_REQUESTS, requests=3), replace(NO_REQUESTS, requests=9)).is_over


def test_old_hits_fade():
    control = replace(NO_REQUESTS, requests=9, prompt_tokens=9000, cached_tokens=9000)
    cold = warm_up_state(replace(NO_REQUESTS, requests=1, prompt_tokens=100), control, blocks=20)
    weights = DECAY ** np.arange(20)
    assert cold.canary.prompt_tokens == pytest.approx(100 * weights.sum())
    assert cold.control.cached_tokens == pytest.approx(9000 * weights.sum())
