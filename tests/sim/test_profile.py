"""Profiles shipped in profiles.yaml against published measurements."""

import pytest

from penstock.sim import scenario
from penstock.sim.profile import profiles
from penstock.sim.report import summaries_of
from penstock.sim.run import run
from penstock.sim.scenario import Scenario, Service
from penstock.sim.workload.generate import Rate


def test_a_prompt_of_4000_is_computed_as_fast_as_llm_d_measured() -> None:
    """V_P of 15.4k to 15.9k tokens/s on Qwen3-32B."""
    times = profiles()["qwen3-32b-h100-tp2"].times
    rate = 4000 / times.iteration_s(4000, 4000 * 2000, 0, 0)
    assert 15_000 < rate < 16_300


@pytest.mark.parametrize(("rps", "holds"), [(1.4, True), (1.8, False)])
def test_a_replica_of_qwen3_32b_sustains_about_as_much_as_llm_d_measured(
    rps: float, holds: bool
) -> None:
    """1.45 requests/s of 4000 and 1000 tokens, with TTFT 3 s and TPOT 100 ms."""
    ramp = scenario.load("llm-d-ramp").services[0]
    assert not isinstance(ramp.workload, scenario.Trace)
    load = Rate(points=((0, rps), (900, rps)), mixes=ramp.workload.mixes)
    alone = {
        **ramp.model_dump(),
        "workload": load.model_dump(),
        "min_replicas": 1,
        "max_replicas": 1,
    }
    one = Scenario(name="one", duration_s=900, services=(Service.model_validate(alone),))
    [summary] = summaries_of(run(one, "static", 0))
    assert (summary.attainment > 0.98) == holds
