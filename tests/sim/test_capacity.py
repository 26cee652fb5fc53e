"""The sustained rate of one replica, found by simulation."""

import pytest

from penstock.sim.capacity import sustained_rps
from penstock.sim.profile import profile
from penstock.sim.scenario import Service
from penstock.sim.workload.generate import Rate
from penstock.sim.workload.lengths import Fixed, Mix, RequestClass

MIX = Mix(classes=(RequestClass(prompt=Fixed(tokens=100), output=Fixed(tokens=1)),))
PROMPT_S = 0.05


@pytest.mark.parametrize("first_rps", [1.0, 40.0])
def test_prompts_alone_are_sustained_up_to_the_time_that_they_take(first_rps: float) -> None:
    """The first rate may be below or above the sustained one. Each step computes at most 512 tokens."""
    workload = Rate(points=((0, 1), (1, 1)), mixes=(MIX,))
    service = Service(profile="qwen2.5-0.5b-cpu", workload=workload, ttft_s=5.0)
    engine = profile("qwen2.5-0.5b-cpu")
    assert engine.times.prompt_token_s * 100 == pytest.approx(PROMPT_S)
    full_s = engine.times.fixed_s + engine.times.prompt_token_s * 512
    found = sustained_rps(
        service, MIX, seeds=1, steps=5, run_s=100.0, first_seed=3, first_rps=first_rps
    )
    assert 0.85 * 5.12 / full_s < found < 1.15 * 5.12 / full_s
