"""The judge before simulated canaries: the seeded part of benchmarks/simulator/canary_judges.py."""

import json

import numpy as np
import pytest
from benchmarks.simulator.canary_judges import BARS_MINUTES, BESIDE, WORSE
from typer.testing import CliRunner

from penstock.cli.main import build
from penstock.core.canary.evidence import History
from penstock.core.spec.canary import CanarySpec
from penstock.sim.rollout.campaign import simulate, summary
from penstock.sim.rollout.growth import Growth
from penstock.sim.rollout.interval import of_quantile, of_share
from penstock.sim.rollout.judges import is_high, make_judge
from penstock.sim.rollout.minutes import live, objectives
from penstock.sim.rollout.requests import Source
from penstock.sim.rollout.scenario import Effect, Scenario


def simulated(scenario, runs, judge="penstock"):
    """Outcomes, and the median minutes of the more frequent one."""
    trials = simulate(judge, scenario, runs, seed=0)
    outcomes = [trial.decided.outcome for trial in trials]
    return outcomes, summary(trials)["median_minutes"]


# Runs are as many as show a fault of the judge, which the test names. The benchmark has hundreds.


@pytest.mark.parametrize(("latency", "minutes"), [("lognormal", 12), ("heavy", 16)])
def test_healthy_canaries_are_promoted(latency, minutes):
    """Promotion takes twice as long if bounds are 1.6 times as wide."""
    scenario = Scenario(canary_rate=2.0, control_rate=18.0, latency=latency)
    outcomes, median = simulated(scenario, 8)
    assert outcomes == ["promoted"] * 8
    assert median <= minutes


def test_queues_abort_no_healthy_canary():
    """The fifth is aborted if a variance is estimated 2.5 times too small."""
    scenario = Scenario(canary_rate=0.5, control_rate=4.5, latency="queue", hours=0.5)
    outcomes, _ = simulated(scenario, 6)
    assert "aborted" not in outcomes


@pytest.mark.parametrize("label", [label for label in BARS_MINUTES if "control" not in label])
def test_worse_canaries_are_found(label):
    """A test with a hundredth or less of its stake misses its bar."""
    outcomes, median = simulated(WORSE[label], 10)
    assert outcomes == ["aborted"] * 10
    assert median <= BARS_MINUTES[label]


@pytest.mark.parametrize(("judge", "aborted"), [("argo", 4), ("flagger", 5), ("kayenta", 0)])
def test_threshold_gates_abort_what_is_healthy(judge, aborted):
    """Argo and Flagger abort two and one at 1.6 times the percentile in place of 1.25."""
    outcomes, _ = simulated(BESIDE, 6, judge)
    assert outcomes.count("aborted") == aborted


def test_run_i_is_the_same_for_every_judge_and_every_time():
    slower = WORSE["+50 % TTFT"]
    first, second = (simulate("penstock", slower, 2, 9) for _ in range(2))
    assert first == second
    assert simulate("penstock", slower, 2, 10) != first
    limits = objectives(BESIDE)
    one, two = (
        next(live(BESIDE, limits, np.random.default_rng([9, 0]), Growth())) for _ in range(2)
    )
    assert one.blocks == two.blocks


def test_queues_keep_no_healthy_canary_waiting():
    """Pods 60 % busy, and all that the judge knows of it is how many requests were ahead.

    Two of the eight are undecided after an hour if it compares all queue lengths with each other.
    """
    scenario = Scenario(
        canary_rate=1.0, control_rate=1.0, latency="queue", utilization=0.6, grows=True
    )
    assert simulated(scenario, 8)[0] == ["promoted"] * 8


def test_requests_ahead_are_those_without_a_first_token():
    """Requests ahead at the same pod, including those of an earlier span, counted one by one."""
    scenario = Scenario(canary_rate=2.0, control_rate=4.0, latency="queue", utilization=0.8)
    source = Source.of(scenario, False, 0.0, np.random.default_rng(1))
    at_s, first_s = np.array([0.0, 1.0, 2.0, 2.5]), np.array([5.0, 1.5, 2.5, 9.0])
    pod_of = np.array([0, 1, 0, 1])
    assert list(source._ahead(at_s, first_s, pod_of)) == [0, 0, 1, 0]
    assert list(source._ahead(np.array([3.0, 6.0]), np.array([7.0, 8.0]), np.zeros(2, int))) == [
        1,
        1,
    ]


def test_traffic_grows_when_the_pods_for_it_are_ready():
    growth = Growth()
    growth.update(60.0, 2.5)
    assert (growth.factor, growth.pods) == (1.0, 1)
    growth.update(120.0, 4.0)
    assert (growth.factor, growth.pods) == (3.0, 3)
    growth.update(180.0, 4.0)
    assert (growth.factor, growth.pods) == (4.0, 4)


def test_a_span_of_a_queue_goes_on_where_the_last_one_ended():
    """Lindley's recursion, one request at a time."""
    scenario = Scenario(canary_rate=1.0, control_rate=1.0, latency="queue", utilization=0.8)
    source = Source.of(scenario, True, 0.0, np.random.default_rng(1))
    at_s = np.array([0.0, 1.0, 2.0, 10.0])
    service_s = np.array([1.5, 2.0, 1.0, 1.0])
    assert source._waits(0, at_s, service_s) == pytest.approx([0.0, 0.5, 1.5, 0.0])


def test_blocks_hold_what_was_drawn():
    minute = next(live(BESIDE, objectives(BESIDE), np.random.default_rng(2), Growth()))
    assert sum(block.control.requests for block in minute.blocks) == minute.control.requests
    logs = sum(moments.total for block in minute.blocks for moments in block.control.ttft)
    assert logs == pytest.approx(float(np.log(minute.control.ttft_s).sum()))


def test_mann_whitney_finds_a_shift_and_nothing_in_noise():
    draw = np.random.default_rng(3)
    noise = draw.normal(1, 0.2, (2, 60))
    assert not is_high(noise[0], noise[1])
    assert is_high(noise[0] + 0.5, noise[1])


def test_no_traffic_is_undecided():
    nothing = Scenario(canary_rate=1e-4, control_rate=1e-2, hours=0.1)
    assert simulated(nothing, 2) == (["undecided"] * 2, None)
    flagger = make_judge("flagger", CanarySpec(), objectives(BESIDE), History())
    silent = list(live(nothing, objectives(BESIDE), np.random.default_rng(1), Growth()))
    assert [flagger.observe(minute) for minute in silent][-1].outcome == "aborted"


@pytest.mark.parametrize(
    ("count", "runs", "low", "high"),
    [(0, 300, 0.0, 0.0122), (3, 300, 0.00207, 0.02894), (300, 300, 0.98778, 1.0)],
)
def test_intervals_of_shares_are_exact(count, runs, low, high):
    assert of_share(count, runs) == pytest.approx((low, high), abs=5e-5)


def test_intervals_of_medians_are_order_statistics():
    assert of_quantile([float(i) for i in range(100)], 0.5) == (40.0, 60.0)


@pytest.mark.parametrize("text", ["ttft", "latency=2", "ttft=x"])
def test_an_effect_that_is_none_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 - float's own message is as good as ours
        Effect.parse(text)


def test_the_command_writes_its_figures(tmp_path):
    out = tmp_path / "figures.json"
    result = CliRunner().invoke(
        build("simulate-rollout"),
        ["simulate-rollout", "--rate", "2", "--effect", "ttft=2,errors=0.1", "--runs", "3",
         "--hours", "0.2", "--control", "--json", str(out)],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    told = json.loads(out.read_text())
    assert told["aborted"] == 1.0
    assert {"promoted", "undecided", "median_minutes", "p95_minutes", "exposed_requests"} <= set(
        told
    )
