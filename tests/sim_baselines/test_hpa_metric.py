"""Metrics against their target, computed by hand from replica_calculator.go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sim.baselines.hpa.metric import AverageMetric, PodsMetric

NO_VALUE = ()


@pytest.mark.parametrize(
    ("values", "missing", "current", "replicas"),
    [
        # The mean over the target, times the pods that have a value.
        ((0.8, 0.8), 0, 2, 4),  # 0.8 / 0.4 = 2; 2 x 2
        ((0.6,), 0, 1, 2),  # 1.5 x 1 = 1.5
        ((0.2, 0.2, 0.2), 0, 3, 2),  # 0.5 x 3 = 1.5
        ((0.0,), 0, 1, 0),
        # Within a tenth nothing moves.
        ((0.44,), 0, 1, 1),  # 1.1
        ((0.36, 0.36), 0, 2, 2),  # 0.9
        ((0.45,), 0, 1, 2),  # 1.125
        # Missing pods count as empty on the way up: (0.8 + 0.8 + 0) / 3 / 0.4 = 1.33; 4.
        ((0.8, 0.8), 1, 3, 4),
        # (0.8 + 0) / 2 / 0.4 = 1: the same as there are.
        ((0.8,), 1, 2, 2),
        # (0.6 + 0) / 2 / 0.4 = 0.75: this would reverse the direction, so it stays.
        ((0.6,), 1, 2, 2),
        # Missing pods count as the target on the way down: (0.1 + 0.4) / 2 / 0.4 = 0.625 x 2 = 1.25.
        ((0.1,), 1, 2, 2),
        # (0.1 x 3 + 0.4) / 4 / 0.4 = 0.4375 x 4 = 1.75.
        ((0.1, 0.1, 0.1), 1, 4, 2),
        # A ratio over fewer pods never turns a raise into a cut.
        ((0.48,), 0, 5, 2),  # 1.2 x 1: kubernetes does so when nothing is missing
        (NO_VALUE, 3, 3, None),
    ],
)
def test_pods_metric(values, missing, current, replicas):
    metric = PodsMetric("kv", 0.4, values, missing)
    assert metric.propose(current, 0.1).replicas == replicas


@pytest.mark.parametrize(
    ("total", "current", "replicas"),
    [
        (35.0, 2, 4),  # 35 / 10
        (30.0, 2, 3),
        (21.0, 2, 2),  # 21 / 20 = 1.05: within a tenth
        (23.0, 2, 3),  # 1.15
        (0.0, 2, 0),
        (5.0, 0, 1),  # from nothing there is no tolerance
        (None, 2, None),
    ],
)
def test_average_metric(total, current, replicas):
    assert AverageMetric("queue", 10.0, total).propose(current, 0.1).replicas == replicas


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10), st.integers(0, 5))
def test_pods_without_a_value_never_move_it_further(values, missing):
    current = len(values) + missing
    whole = PodsMetric("kv", 0.4, tuple(values)).propose(len(values), 0.0).replicas
    partly = PodsMetric("kv", 0.4, tuple(values), missing).propose(current, 0.0).replicas
    if sum(values) / len(values) > 0.4:
        assert partly <= max(whole, current)
    else:
        assert partly <= current
