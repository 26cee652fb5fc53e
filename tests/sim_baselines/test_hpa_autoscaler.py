"""HPA timing, KEDA activation, and lost metrics."""

from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import Missing
from penstock.sim.baselines.hpa_kv import hpa_kv
from penstock.sim.baselines.hpa_queue import hpa_queue
from penstock.sim.baselines.keda_queue_guard import keda_queue_guard


def test_it_syncs_every_15_s_on_a_scrape_10_s_old(engine, observe_pods, decide_all):
    full = [engine(kv_usage=0.9)]
    idle = [engine()]
    observations = [observe_pods(t, full if t <= 12 else idle) for t in range(0, 45, 5)]
    decisions, _ = decide_all(hpa_kv(target=0.4), observations)
    syncs = [
        observation.now_s
        for observation, d in zip(observations, decisions, strict=True)
        if d.code != "BetweenSyncs"
    ]
    assert syncs == [10, 25, 40]
    assert decisions[2].desired == 3  # 0.9 / 0.4 = 2.25, scraped at 0
    assert decisions[5].desired == 1  # scraped at 15, idle by then; the window is not up yet


def test_up_at_once_and_down_after_five_minutes(engine, observe_pods, simulate):
    def load(now, n):
        return observe_pods(now, [engine(kv_usage=0.9 if 30 < now < 60 else 0.1) for _ in range(n)])

    course = simulate(hpa_kv(target=0.4), load, 600)
    peak = max(course)
    first = course.index(peak)
    assert peak == 3  # 0.9 / 0.4 = 2.25
    lasts_s = 5 * sum(n == peak for n in course[first:])
    assert lasts_s == 300


def test_a_bounded_metric_grows_by_a_bounded_ratio(engine, observe_pods, simulate):
    """However large the deficit, 1 / 0.8 a step: 4, 5, 7, 9 every 15 s."""
    course = simulate(
        hpa_kv(0.8), lambda t, n: observe_pods(t, [engine(kv_usage=1.0)] * n), 60, start=4
    )
    assert sorted(set(course)) == [4, 5, 7, 9, 12]


def test_an_unbounded_one_asks_for_the_deficit(engine, observe_pods, simulate):
    def load(now, n):
        return observe_pods(now, [engine(waiting=60 // n)] * n)

    course = simulate(hpa_queue(target=5), load, 60, start=4)
    assert course[2] == 8  # 15 waiting each is 3 x 4 = 12, but no more than 100 % in 15 s
    assert course[5] == 12


def test_the_gateway_queue_counts_as_waiting(engine, gateway, observe_pods, decide_all):
    observations = [
        observe_pods(t, [engine()] * 2, gateway=gateway(queued=20)) for t in range(0, 15, 5)
    ]
    decisions, _ = decide_all(hpa_queue(target=5), observations)
    assert decisions[-1].desired == 4  # 20 / 2 = 10 a pod; 10 / 5 x 2


def test_no_metric_holds(observe_pods, decide_all):
    decisions, _ = decide_all(hpa_kv(), [observe_pods(t, missing=3) for t in range(0, 60, 5)])
    held = [d for d in decisions if d.code == "FailedGetMetrics"]
    assert len(held) == 4
    assert all(d.desired == 3 and not d.valid for d in held)


def test_a_blackout_reads_as_idle_where_the_rule_sums(gateway, engine, observe_pods, simulate):
    """KEDA's ignoreNullValues, as published: scrape loss walks the pool down to its minimum."""

    def load(now, n):
        at = Missing("gateway", "no answer") if now > 60 else gateway(in_flight=64)
        return observe_pods(now, [engine()] * n, gateway=at)

    course = simulate(keda_queue_guard(), load, 600, start=4)
    assert course[12] == 4
    assert course[-1] == 1


def test_keda_goes_to_zero_after_its_cooldown_and_back_on_work(
    gateway, engine, observe_pods, simulate
):
    def load(now, n):
        return observe_pods(
            now, [engine()] * n, gateway=gateway(in_flight=int(now < 60 or now > 900))
        )

    course = simulate(keda_queue_guard(), load, 960, start=1, bounds=Bounds(0, 8))
    zero = course.index(0)
    assert 50 + 300 <= 5 * zero <= 60 + 300 + 15
    assert set(course[zero : 900 // 5]) == {0}
    assert course[-1] == 1


def test_a_plain_hpa_rests_at_zero(engine, observe_pods, decide_all):
    decisions, _ = decide_all(hpa_kv(), [observe_pods(t) for t in range(0, 60, 5)], Bounds(0, 8))
    assert {d.desired for d in decisions} == {0}


def test_out_of_bounds_is_corrected_without_metrics(engine, observe_pods, decide_all):
    observations = [observe_pods(t, [engine(kv_usage=0.8)] * 9) for t in range(0, 15, 5)]
    assert decide_all(hpa_kv(), observations, Bounds(1, 4))[0][-1].desired == 4
    observations = [observe_pods(t, [engine(kv_usage=0.0)]) for t in range(0, 15, 5)]
    assert decide_all(hpa_kv(), observations, Bounds(2, 4))[0][-1].desired == 2
