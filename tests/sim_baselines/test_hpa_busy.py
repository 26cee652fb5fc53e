"""HPA on the busy share, as GPU utilization shows it."""

from penstock.sim.baselines.hpa_busy import hpa_busy


def test_one_request_at_a_time_looks_like_a_full_gpu(engine, observe_pods, simulate):
    course = simulate(
        hpa_busy(0.8), lambda t, n: observe_pods(t, [engine(running=1)] * n), 120, start=4
    )
    assert course[2] == 5  # 1 / 0.8 x 4
    assert course[-1] == 20


def test_half_of_the_time(engine, observe_pods, decide_all):
    """Every second of 12 scrapes found a request: 0.5 / 0.8 x 4 = 2.5."""
    looks = [observe_pods(t, [engine(running=int(t % 10 == 0))] * 4) for t in range(0, 420, 5)]
    decisions, _ = decide_all(hpa_busy(0.8), looks)
    assert decisions[-1].desired == 3


def test_pods_that_start_are_set_aside(engine, observe_pods, decide_all):
    """(1 + 0 + 0) / 3 / 0.8 = 0.42 would reverse the direction, so it stays at three."""
    looks = [observe_pods(t, [engine(running=1)], starting=2) for t in range(0, 15, 5)]
    assert decide_all(hpa_busy(0.8), looks)[0][-1].desired == 3
