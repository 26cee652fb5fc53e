"""Fixtures: small scenarios with one service under a constant load."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.sim.scenario import Scenario

MakeScenario = Callable[..., Scenario]


@pytest.fixture
def make_scenario() -> MakeScenario:
    def make(
        rps: float = 4.0, duration_s: float = 120.0, faults: Any = (), **service: Any
    ) -> Scenario:
        lengths = {
            "prompt": {"kind": "lognormal", "median": 800, "p99": 4000},
            "output": {"kind": "lognormal", "median": 60, "p99": 300},
        }
        spec = {
            "profile": "llama-3.1-8b-h100",
            "ttft_s": 1.0,
            "tpot_s": 0.05,
            "startup_s": 20.0,
            "workload": {
                "kind": "rate",
                "points": [(0, rps), (duration_s, rps)],
                "mixes": [{"classes": [lengths]}],
            },
            **service,
        }
        return Scenario.model_validate(
            {"name": "small", "duration_s": duration_s, "services": [spec], "faults": faults}
        )

    return make
