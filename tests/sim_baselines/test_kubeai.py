"""KubeAI: a moving average that starts with zeros."""

from penstock.core.scaling.signals import Missing
from penstock.sim.baselines.kubeai import KubeAi


def test_the_average_starts_with_zeros(gateway, engine, observe_pods, decide_all):
    """300 active requests, at 100 per replica and a window of 60 samples that starts with zeros, need 3
    replicas. The average reaches 100 after 20 samples and 200 after 40."""
    looks = [observe_pods(10 * i, [engine()], gateway=gateway(in_flight=300)) for i in range(60)]
    desired = [d.desired for d in decide_all(KubeAi(), looks)[0]]
    assert (desired[19], desired[20], desired[39], desired[40], desired[59]) == (1, 2, 2, 3, 3)


def test_down_at_the_fourth_sample_and_then_at_once(gateway, engine, observe_pods, simulate):
    """A scale-down delay of 30 s is three samples. A scale-down does not reset their count."""
    rule = KubeAi(target_requests=10.0, time_window_s=10.0)
    active = {0: 50, 1: 20, 2: 20, 3: 20, 4: 20, 5: 10}
    course = simulate(
        rule,
        lambda t, n: observe_pods(t, [engine()] * n, gateway=gateway(in_flight=active[t // 10])),
        50,
        5,
    )
    assert course == [5, 5, 5, 5, 2, 1]


def test_a_steady_look_starts_the_count_anew(gateway, engine, observe_pods, simulate):
    rule = KubeAi(target_requests=10.0, time_window_s=10.0)
    active = [50, 20, 20, 50, 20, 20, 20, 20]
    course = simulate(
        rule,
        lambda t, n: observe_pods(
            t, [engine()] * n, gateway=gateway(in_flight=active[int(t) // 10])
        ),
        70,
        5,
    )
    assert course == [5, 5, 5, 5, 5, 5, 5, 2]


def test_no_count_is_no_look(gateway, engine, observe_pods, decide_all):
    lost = observe_pods(10, [engine()] * 4, gateway=Missing("gateway", "gone"))
    [held], state = decide_all(KubeAi(), [lost])
    assert (held.desired, held.valid) == (4, False)
    assert state == KubeAi().initial()
