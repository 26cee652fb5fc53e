"""Fixed replica count and clairvoyant oracle."""

import pytest

from penstock.sim.baselines.oracle import Oracle, oracle_of
from penstock.sim.baselines.static import Static


def test_static(observe_pods, engine, decide_all):
    decisions, _ = decide_all(
        Static(6), [observe_pods(0, [engine()]), observe_pods(15, [engine()] * 9)]
    )
    assert [d.desired for d in decisions] == [6, 6]
    assert decide_all(Static(), [observe_pods(0, [engine()])])[0][0].desired == 20  # the maximum


@pytest.mark.parametrize(
    ("now", "desired"),
    [
        (0.0, 2),
        (194.0, 2),  # 194 + 100 + 5 = 299
        (195.0, 5),  # the step at 300 s is 105 s away
        (300.0, 5),
        (599.0, 5),  # still needed now
        (600.0, 1),
        (5000.0, 1),
    ],
)
def test_oracle_asks_ahead_by_the_start_up(observe_pods, engine, decide_all, now, desired):
    rule = Oracle(((0.0, 2), (300.0, 5), (600.0, 1)), ahead_s=100.0)
    assert decide_all(rule, [observe_pods(now, [engine()])])[0][0].desired == desired


def test_oracle_of_arrivals(observe_pods, engine, decide_all):
    """3 a second in the first minute, 6 in the second, none in the third; 2 a replica."""
    arrivals = [i / 3 for i in range(180)] + [60 + i / 6 for i in range(360)]
    rule = oracle_of([(at_s, 1 / 2.0) for at_s in arrivals], ahead_s=30.0)
    assert rule.needed == ((0.0, 2), (60.0, 3), (120.0, 0))
    observations = [observe_pods(t, [engine()]) for t in (0.0, 30.0, 100.0, 120.0)]
    assert [d.desired for d in decide_all(rule, observations)[0]] == [2, 3, 3, 1]
