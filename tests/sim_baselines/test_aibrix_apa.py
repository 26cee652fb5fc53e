"""AIBrix APA with its published quirks."""

import pytest

from penstock.sim.baselines.aibrix_apa import AibrixApa


@pytest.mark.parametrize(
    ("n", "value", "replicas"),
    [
        (4, 0.55, 4),  # 1.1: within the tolerance
        (4, 0.60, 5),  # 1.2 x 4 = 4.8
        (4, 0.95, 8),  # 1.9 x 4 = 7.6
        (4, 1.50, 8),  # 3 x 4, but at most twice
        (4, 0.45, 4),
        (4, 0.40, 4),  # 0.8 x 4 = 3.2
        (4, 0.30, 3),  # 0.6 x 4 = 2.4
        (9, 0.10, 4),  # 0.2 x 9 = 1.8, but at least half
    ],
)
def test_ratio(n, value, replicas):
    assert AibrixApa(target=0.5).recommended(n, value) == replicas


def test_the_mean_over_pods_and_then_over_the_window(engine, observe_pods, decide_all):
    looks = [observe_pods(0, [engine(kv_usage=0.9), engine(kv_usage=0.1)])]
    looks.append(observe_pods(10, [engine(kv_usage=1.0), engine(kv_usage=0.8)]))
    assert (
        decide_all(AibrixApa(target=0.5), looks)[0][-1].desired == 3
    )  # (0.5 + 0.9) / 2 = 0.7; 2.8


def test_up_is_immediate_and_down_takes_the_lowest_of_the_window(
    engine, observe_pods, decide_all, simulate
):
    """The opposite of an HPA: after one idle scrape the smallest recommendation wins."""

    def load(now, n):
        usage = 0.4 if now == 100 else 0.8
        return observe_pods(now, [engine(kv_usage=usage)] * n)

    rule = AibrixApa(target=0.8, window_s=10.0)
    course = simulate(rule, load, 320, start=8)
    assert course[9] == 8
    assert course[10] == 4  # 0.4 / 0.8 x 8: at once, no window holds it

    looks = [
        observe_pods(0, [engine(kv_usage=0.2)] * 8),
        observe_pods(10, [engine(kv_usage=0.7)] * 8),
    ]
    decisions, _ = decide_all(rule, looks)
    assert [d.desired for d in decisions] == [4, 4]  # 0.7 / 0.8 x 8 = 7, but 4 was recommended


def test_pending_pods_are_requested_again_unless_guarded(engine, observe_pods, decide_all):
    """2 ready at 1.0 of 0.5, 2 start: 2.0 x 4 = 8; guarded 1.0 x 2 / 0.5 = 4."""
    looks = [observe_pods(0, [engine(kv_usage=1.0)] * 2, starting=2)]
    assert decide_all(AibrixApa(target=0.5), looks)[0][0].desired == 8
    assert decide_all(AibrixApa(target=0.5, guards_pending=True), looks)[0][0].desired == 4
    # Down: (0.1 x 2 + 0.5 x 2) / 0.5 = 2.4 rather than half of 4.
    looks = [observe_pods(0, [engine(kv_usage=0.1)] * 2, starting=2)]
    assert decide_all(AibrixApa(target=0.5), looks)[0][0].desired == 2
    assert decide_all(AibrixApa(target=0.5, guards_pending=True), looks)[0][0].desired == 3


def test_unreadable_pods_are_left_out_of_the_sum(engine, observe_pods, decide_all):
    assert (
        decide_all(AibrixApa(target=0.5), [observe_pods(0, [engine(kv_usage=0.9)], missing=1)])[0][
            0
        ].desired
        == 4
    )
    [held] = decide_all(AibrixApa(), [observe_pods(0, missing=2)])[0]
    assert (held.desired, held.valid) == (2, False)
