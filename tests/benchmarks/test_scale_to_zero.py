"""Parts of the benchmarks of scale to zero."""

from dataclasses import replace

import pytest
from benchmarks.scale_to_zero.real_cluster import Answer, StartUp, print_cycle
from benchmarks.scale_to_zero.simulated import MAX_DELAY_S, measure

from penstock.sim import scenario
from penstock.sim.scenario import Scenario


def short(**changes: object) -> Scenario:
    """Two hours of the shipped scenario."""
    whole = scenario.load("scale-to-zero")
    [service] = whole.services
    changed = service.model_copy(update=changes)
    return whole.model_copy(update={"duration_s": 7200.0, "services": (changed,)})


def test_the_shipped_scenario_wakes_and_loses_nothing() -> None:
    delays_s, num_requests, num_lost = measure(short(), 4)
    assert (len(delays_s) >= 4, num_lost) == (True, 0)
    assert num_requests >= len(delays_s)
    assert all(0 < delay_s < MAX_DELAY_S for delay_s in delays_s)


def test_a_scenario_that_never_wakes_is_refused() -> None:
    with pytest.raises(SystemExit, match="seed 0 of scale-to-zero has no wake-up"):
        measure(short(min_replicas=1, initial_replicas=1, idle_after_s=None), 1)


def test_figures_of_a_cycle(capsys: pytest.CaptureFixture[str]) -> None:
    answered = Answer(asked_s=100.0, first_token_s=104.0)
    start = StartUp(created_s=100.5, ready_s=103.5)
    assert print_cycle("cycle 1", [answered, replace(answered, first_token_s=105.0)], start) == 0
    assert print_cycle("cycle 2", [answered, replace(answered, first_token_s=None)], start) == 1
    assert print_cycle("cycle 3", [replace(answered, first_token_s=None)], start) == 1
    assert capsys.readouterr().out.splitlines() == [
        "cycle 1: 2 requests, 0 without an answer; start-up 3.00 s; first token minus start-up: median "
        "1.50 s, at most 2.00 s",
        "cycle 2: 2 requests, 1 without an answer; start-up 3.00 s; first token minus start-up: median "
        "1.00 s, at most 1.00 s",
        "cycle 3: 1 requests, 1 without an answer; start-up 3.00 s; first token minus start-up: none",
    ]
