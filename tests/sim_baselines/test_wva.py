"""WVA analyzers, and the HPA around them."""

from dataclasses import replace
from itertools import pairwise

import pytest

from penstock.core.scaling.rule import Bounds
from penstock.sim.baselines.wva import PodLoad, Wva
from penstock.sim.baselines.wva_v1 import SpareAnalyzer, wva_v1
from penstock.sim.baselines.wva_v2 import TokenAnalyzer

V1 = SpareAnalyzer(0.80, 5, 0.10, 3)


def load(kv=0.0, waiting=0, **numbers):
    known = {"input_tokens": 0.0, "output_tokens": 0.0, "hit_rate": 0.0}
    return PodLoad(kv, waiting, 100_000, **{**known, **numbers})


@pytest.mark.parametrize(
    ("loads", "target"),
    [
        # Spare KV 0.80 - 0.75 = 0.05 is below 0.10.
        ([load(0.75)], 2),
        ([load(0.70)], 1),
        # Spare queue 5 - 3 = 2 is below 3.
        ([load(0.1, 3), load(0.1, 3)], 3),
        # The saturated pod does not count; the other has enough spare: hold.
        ([load(0.9), load(0.5)], 2),
        ([load(0.9), load(0.75)], 3),
        # All are saturated: nothing is spare.
        ([load(0.9), load(0.1, 5)], 3),
        # Down: 0.3 x 3/2 = 0.45 leaves 0.35, a queue of 1 x 3/2 leaves 3.5.
        ([load(0.3, 1)] * 3, 2),
        # 0.5 x 2 = 1.0 leaves nothing.
        ([load(0.5)] * 2, 2),
        # 0.35 x 2 = 0.70 leaves 0.10, which is just enough.
        ([load(0.35)] * 2, 1),
        ([load(0.0)], 1),
    ],
)
def test_v1(observe_pods, engine, loads, target):
    seen = observe_pods(0, [engine()] * len(loads))
    assert V1.target(seen, tuple(loads), 0, None) == (target, None)


def test_v1_stands_still_in_transition(observe_pods, engine):
    seen = observe_pods(0, [engine()] * 2, starting=1)
    assert V1.target(seen, (load(0.9),) * 2, 3, None)[0] == 3  # two of three report
    assert V1.target(seen, (load(0.9),) * 2, 4, None)[0] == 4  # the desired count is not reached


def v2(profile, **knobs):
    return TokenAnalyzer(profile, **{"up_at": 0.85, "down_at": 0.70, "kv_threshold": 0.8,
                                     "queue_threshold": 5, **knobs})  # fmt: skip


@pytest.mark.parametrize(
    ("loads", "provisioned", "target"),
    [
        # Capacity by memory 80,000. Demand 150,000 / 0.85 = 176,471; 176,471 - 160,000: 1 more.
        ([load(0.75), load(0.75)], 2, 3),
        # A starting pod counts: 240,000 is enough.
        ([load(0.75), load(0.75)], 3, 3),
        # 60,000 / 0.85 < 160,000; 160,000 - 60,000 / 0.7 = 74,286: less than one.
        ([load(0.30), load(0.30)], 2, 2),
        # 320,000 - 120,000 / 0.7 = 148,571: one goes.
        ([load(0.30)] * 4, 4, 3),
        # 240,000 - 0: three spare, but one stays.
        ([load(0.0)] * 3, 3, 1),
    ],
)
def test_v2_by_memory(profile, observe_pods, engine, loads, provisioned, target):
    seen = observe_pods(0, [engine()] * len(loads), provisioned=provisioned)
    assert v2(profile).target(seen, tuple(loads), 0, {})[0] == target


def test_v2_learns_the_compute_bound_under_a_full_queue(profile, observe_pods, engine):
    """6 wait at 40,000 tokens: that is the capacity, remembered by the length of answers."""
    full = load(0.4, 6, input_tokens=1000.0, output_tokens=200.0)
    number, memory = v2(profile).target(observe_pods(0, [engine()]), (full,), 0, {})
    # Demand 40,000 + 6 x 1,000 = 46,000; 46,000 / 0.85 - 40,000 = 14,118: one more.
    assert number == 2
    assert memory == {"medium": (40_000.0,)}
    calm = replace(full, waiting=0, kv_usage=0.36)
    # 36,000 / 0.85 = 42,353 over the remembered 40,000.
    assert v2(profile).target(observe_pods(0, [engine()]), (calm,), 0, memory)[0] == 2


def test_v2_derives_it_from_lengths(profile):
    """8192 x 100 / 1000 = 819 sequences are more than 64; 64 x (900 + 50)."""
    assert v2(profile).derived(900.0, 100.0) == pytest.approx(64 * 950)
    """8192 x 10 / 8192 = 10 sequences; 10 x (8182 + 5)."""
    assert v2(profile).derived(8182.0, 10.0) == pytest.approx(10 * 8187)


def test_v2_counts_the_gateways_queue(profile, observe_pods, engine, gateway):
    """max(30,000, 20 x 1000) x (1 - 0.5) + 20 x 200 = 19,000, and 50,000 in use: 69,000 / 0.85."""
    busy = load(0.5, 0, input_tokens=1000.0, output_tokens=200.0, hit_rate=0.5)
    memory = {"medium": (80_000.0,)}
    seen = observe_pods(0, [engine()], gateway=gateway(queued=20, queued_prompt_tokens=30_000))
    assert v2(profile).target(seen, (busy,), 0, memory)[0] == 2
    seen = observe_pods(0, [engine()], gateway=gateway(queued=0))
    assert v2(profile).target(seen, (busy,), 0, memory)[0] == 1


def test_it_takes_the_worst_of_a_minute_and_lengths_of_five(observe_pods, engine, latencies):
    source = Wva(V1)
    series = source.initial()
    for now, usage in ((0, 0.1), (15, 0.74), (30, 0.1), (45, 0.1), (60, 0.1)):
        series = source.scrape(
            None, Bounds(1, 8), observe_pods(now, [engine(kv_usage=usage)]), series
        )
        assert series.desired == (1 if now < 60 else 2)  # 0.74 was 45 s ago


def test_no_report_keeps_the_number(observe_pods):
    source = Wva(V1)
    series = source.scrape(None, Bounds(1, 8), observe_pods(0, missing=3), source.initial())
    assert series.desired == 3


def test_v1_is_not_stuck_at_a_count_outside_the_bounds(observe_pods, engine, simulate):
    """Idle at the minimum it wants one fewer, full at the maximum one more; it waits for neither."""

    def load(now, n):
        return observe_pods(now, [engine(kv_usage=0.78 if 300 < now < 1200 else 0.1)] * n)

    course = simulate(wva_v1(), load, 2400, start=3, bounds=Bounds(3, 4))
    assert (course[59], course[200], course[-1]) == (3, 4, 3)


def test_v1_waits_for_readiness_before_the_next_one(observe_pods, engine, simulate):
    """At most one step per minute, and the HPA holds each for 120 s."""
    course = simulate(wva_v1(), lambda t, n: observe_pods(t, [engine(kv_usage=0.78)] * n), 900)
    rises = [5 * i for i in range(1, len(course)) if course[i] > course[i - 1]]
    assert course[-1] > 3
    assert all(later - earlier >= 120 for earlier, later in pairwise(rises))
