"""demand <= replicas ? demand : max(demand - pending, replicas)"""

import pytest

from penstock.sim.baselines.keda_queue_guard import keda_queue_guard


@pytest.mark.parametrize(
    ("queued", "in_flight", "ready", "starting", "replicas"),
    [
        (0, 64, 2, 0, 4),  # 64 / 16
        (7, 64, 2, 2, 5),  # queue 7 / 1: 7 - 2 that start = 5
        (6, 64, 2, 2, 4),  # 6 - 2 = 4
        (5, 64, 2, 2, 4),  # 5 - 2 = 3, but never fewer than there are
        (0, 17, 2, 0, 2),  # 1.06 over 2 replicas: 0.53, down to 2 by the ceiling
        (3, 0, 3, 0, 3),
        (9, 0, 3, 0, 6),  # no more than 100 % in 15 s
    ],
)
def test_formula(
    gateway, engine, observe_pods, decide_all, queued, in_flight, ready, starting, replicas
):
    at = gateway(queued=queued, in_flight=in_flight)
    observations = [
        observe_pods(t, [engine()] * ready, starting=starting, gateway=at) for t in range(0, 15, 5)
    ]
    assert decide_all(keda_queue_guard(), observations)[0][-1].desired == replicas


def test_without_a_gateway_the_engines_are_asked(engine, observe_pods, decide_all):
    observations = [observe_pods(t, [engine(running=40, waiting=0)] * 2) for t in range(0, 15, 5)]
    # 80 / 16 = 5, at most twice 2
    assert decide_all(keda_queue_guard(), observations)[0][-1].desired == 4
