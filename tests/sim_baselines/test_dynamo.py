"""Dynamo planner: best rate, forecast, and steps of one replica."""

from dataclasses import replace

import pytest

from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines.dynamo_load import Averages, DynamoLoad
from penstock.sim.baselines.dynamo_model import best_rate, next_ttft_s
from penstock.sim.baselines.dynamo_throughput import DynamoThroughput
from penstock.sim.baselines.kalman import Trend

GOAL = Objectives(ttft_s=1.0, tpot_s=0.05)
IDLE = Averages(1000.0, 0.0, 0.0, 0.0)


def test_ttft_is_chunk_by_chunk(profile):
    """10,000 tokens: 8,192 in 10 + 409.6 ms, 1,808 in 10 + 90.4 ms."""
    assert next_ttft_s(profile, 9_000, 1_000, 0, 0) == pytest.approx(0.52)


def test_best_rate_stops_where_an_objective_breaks(profile):
    """A batch of b: 10 ms + 50 us x 10 b + 1 ms x b + 0.1 us x 1,050 b = 10 + 1.605 b ms <= 50."""
    rate = best_rate(profile, GOAL, isl=1000.0, osl=100.0, hit_rate=0.0)
    assert rate == pytest.approx(24 / (100 * 0.04852))
    easier = best_rate(profile, GOAL, 1000.0, 100.0, hit_rate=0.5)
    assert easier == pytest.approx(29 / (100 * (0.01 + 29 * (0.00025 + 0.001 + 0.000105))))


def test_best_rate_stops_where_kv_or_sequences_end(profile):
    lax = Objectives(ttft_s=1e9, tpot_s=1e9)
    roomy = replace(profile, max_sequences=1000)
    batch = 95  # 100,000 / 1,050
    assert best_rate(roomy, lax, 1000.0, 100.0, 0.0) == pytest.approx(
        batch / (100 * (0.01 + batch * 0.001605))
    )
    assert best_rate(profile, lax, 1000.0, 100.0, 0.0) == pytest.approx(
        64 / (100 * (0.01 + 64 * 0.001605))
    )


def test_an_objective_out_of_reach_runs_one_at_a_time(profile):
    never = Objectives(ttft_s=1e-9, tpot_s=1e-9)
    assert best_rate(profile, never, 1000.0, 100.0, 0.0) == pytest.approx(1 / (100 * 0.011605))


def traffic(gateway, observe_pods, engine, per_interval):
    """Gateway readings with requests of 1,000 and 100 tokens; counts per 180 s."""
    total, observations = 0, []
    for i, requests in enumerate((0, *per_interval)):
        total += requests
        at = gateway(180.0 * i, arrivals=total, prompt_tokens=1000 * total, ended=total,
                     output_tokens=100 * total)  # fmt: skip
        observations.append(observe_pods(180.0 * i, [engine()] * 2, gateway=at))
    return observations


def test_throughput_divides_the_forecast_by_the_best_rate(
    profile, gateway, observe_pods, engine, decide_all
):
    """4.946 requests/s a replica: 900 in 180 s are 5 a second, 2 replicas; 2,700 are 15, 4."""
    rule = DynamoThroughput(profile=profile)
    observations = traffic(gateway, observe_pods, engine, (900, 2700, 0))
    decisions, _ = decide_all(rule, observations, objectives=GOAL)
    assert [d.desired for d in decisions] == [2, 2, 4, 2]
    assert decisions[3].code == "NoTraffic"


def test_a_share_of_the_objectives_asks_for_more(
    profile, gateway, observe_pods, engine, decide_all
):
    observations = traffic(gateway, observe_pods, engine, (2700,))
    half = DynamoThroughput(profile=profile, objective_share=0.5)
    # 10 + 1.605 b <= 25: 9 at 24.4 ms, 3.68 requests/s; 15 / 3.68 = 4.07.
    assert decide_all(half, observations, objectives=GOAL)[0][-1].desired == 5


def test_the_trend_goes_on(profile, gateway, observe_pods, engine, decide_all):
    """900 more each interval, from 900: the seventh would be 6,300, 35 a second."""
    observations = traffic(gateway, observe_pods, engine, [900 * i for i in range(1, 7)])
    constant = decide_all(DynamoThroughput(profile=profile), observations, objectives=GOAL)[0][-1]
    kalman = decide_all(
        DynamoThroughput(profile=profile, predictor="kalman"), observations, objectives=GOAL
    )
    assert constant.desired == 7  # 30 / 4.946 = 6.07
    assert kalman[0][-1].desired == 8  # 35 / 4.946 = 7.08


def test_kalman_needs_five_points_and_settles_on_a_line():
    trend = Trend(10.0)
    for i in range(1, 4):
        trend = trend.then(10.0 + 5 * i)
        assert trend.next == 10.0 + 5 * i
    for i in range(4, 30):
        trend = trend.then(10.0 + 5 * i)
    assert trend.next == pytest.approx(10.0 + 5 * 30, rel=1e-3)


@pytest.mark.parametrize(
    ("pending", "running", "kv", "n", "replicas"),
    [
        # Idle: an own prompt of 1,000 takes 60 ms. One fewer of three can take it.
        (0, 0, 0.0, 3, 2),
        (0, 0, 0.0, 1, 1),
        # 20,000 pending: 21,000 tokens in three chunks, 30 + 1,050 ms. More than 1 s everywhere.
        (20_000, 0, 0.0, 3, 4),
        # 12,000: 13,000 in two chunks, 670 ms; a queue of 18,000 is 960 - 60 ms over 80 % of 940.
        (12_000, 0, 0.0, 3, 3),
        # 45 sequences: 55 ms an iteration is more than 50.
        (0, 45, 0.0, 3, 4),
        # 25: 35 ms; 37.5 of them for the rest: 47.5 ms is more than 80 % of 50.
        (0, 25, 0.0, 3, 3),
        # 70,000 tokens of KV x 3/2 do not fit.
        (0, 5, 0.7, 3, 3),
    ],
)
def test_load_moves_by_one(profile, engine, pending, running, kv, n, replicas):
    worker = engine(prefill_tokens_pending=pending, running=running, kv_usage=kv)
    asked, _ = DynamoLoad(profile=profile).step(GOAL, (worker,) * n, IDLE)
    assert asked == replicas


def test_load_needs_all_workers_to_be_late(profile, engine):
    late, idle = engine(prefill_tokens_pending=50_000), engine()
    rule = DynamoLoad(profile=profile)
    assert rule.step(GOAL, (late, idle), IDLE)[0] == 2
    assert rule.step(GOAL, (late, late), IDLE)[0] == 3


def test_load_waits_for_a_scaling_and_for_every_worker(
    profile, observe_pods, engine, gateway, decide_all
):
    late = engine(prefill_tokens_pending=50_000)
    observations = [
        observe_pods(0, [late], starting=1),
        observe_pods(5, [late], missing=1),
        observe_pods(10, [late, late]),
    ]
    decisions, _ = decide_all(DynamoLoad(profile=profile), observations, objectives=GOAL)
    assert [(d.desired, d.code) for d in decisions] == [
        (2, "InProgress"), (2, "WorkerCountMismatch"), (3, "ScaleUp")
    ]  # fmt: skip


def test_the_gateway_queue_counts_as_queued_at_the_workers(
    profile, observe_pods, engine, gateway, decide_all
):
    at = gateway(queued=40, queued_prompt_tokens=80_000)
    observations = [observe_pods(0, [engine()] * 2, gateway=at)]
    assert decide_all(DynamoLoad(profile=profile), observations, objectives=GOAL)[0][0].desired == 3


def test_throughput_sets_the_floor_of_load(profile, observe_pods, engine, gateway, decide_all):
    rule = DynamoLoad(profile=profile, throughput=DynamoThroughput(profile=profile))
    observations = traffic(gateway, observe_pods, engine, (2700, 2700))
    decisions, _ = decide_all(rule, observations, objectives=GOAL)
    assert [d.desired for d in decisions] == [1, 4, 4]
