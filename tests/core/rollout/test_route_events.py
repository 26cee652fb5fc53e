"""Events of gateways that apply the traffic, and gateways that lag."""

import pytest
from tests.core.rollout.rollout_inputs import (
    BACK,
    JUDGED,
    KEPT,
    NEW,
    OBEYED,
    OLD,
    OTHER,
    PROMOTING,
    SINCE_S,
    TO_NEW,
    TO_OLD,
    inputs,
    pod,
    shares,
    state,
)

from penstock.core.rollout.events import detect_events
from penstock.core.rollout.traffic_moves import lagging_gateway, rollback_until_s
from penstock.core.routing.pick import Side

MOVED = "2 of 2 gateways apply traffic generation 3"


@pytest.mark.parametrize(
    ("of", "rollout_inputs", "reason"),
    [
        (PROMOTING, inputs(traffic=TO_NEW, said={"applied_generations": OBEYED}), MOVED),
        (PROMOTING, inputs(traffic=(), said={"applied_generations": OBEYED}), MOVED),
        (PROMOTING, inputs(traffic=shares(Side(NEW), Side(OLD)), said={"applied_generations": OBEYED}), None),
        (PROMOTING, inputs(traffic=TO_NEW, said={"applied_generations": {}}),
         "0 of 0 gateways apply traffic generation 3"),
        (PROMOTING, inputs(traffic=TO_NEW, after_s=29), None),
        (PROMOTING, inputs(traffic=TO_NEW, after_s=30), "the gateways are not known yet, after 30 s"),
        (PROMOTING, inputs(traffic=TO_NEW, said={"applied_generations": {"g": 3, "h": 2}}), None),
        (PROMOTING, inputs(traffic=TO_NEW, after_s=30, said={"applied_generations": {"g": 3, "h": 2}}),
         "gateway h applies traffic generation 2, not 3 yet, after 30 s"),
        (PROMOTING, inputs(traffic=TO_NEW, after_s=31, said={"applied_generations": {"g": None, "h": 2}}),
         "gateway g does not report the traffic generation that it applies, after 30 s"),
        (KEPT, inputs(traffic=TO_NEW, after_s=299, said={"applied_generations": OBEYED}), None),
        (KEPT, inputs(traffic=TO_NEW, after_s=300, said={"applied_generations": OBEYED}), MOVED),
        (BACK, inputs(traffic=TO_OLD, said={"applied_generations": OBEYED}), MOVED),
        (BACK, inputs(traffic=(*TO_OLD, *TO_NEW), said={"applied_generations": OBEYED}), None),
        # The new revision is all that serves.
        (BACK, inputs(pod(), traffic=TO_OLD, said={"applied_generations": OBEYED}), None),
        (BACK, inputs(pod(), pod(OLD), traffic=TO_OLD, said={"applied_generations": OBEYED}), MOVED),
        (PROMOTING, inputs(pod(), traffic=TO_NEW, said={"applied_generations": OBEYED}), MOVED),
    ],
)  # fmt: skip
def test_routes_that_have_moved(of, rollout_inputs, reason):
    assert list(detect_events(of, rollout_inputs)) == ([("RoutesMoved", reason)] if reason else [])


@pytest.mark.parametrize(
    ("of", "wanted", "until_s"),
    [
        (KEPT, NEW, 300),
        (KEPT, OTHER, 0),
        (PROMOTING, NEW, 0),
        (state("RollingBack", "BlueGreen"), NEW, 0),
    ],
)
def test_how_long_the_way_back_is_kept(of, wanted, until_s):
    assert rollback_until_s(of, inputs(wanted=wanted)) == SINCE_S + until_s


@pytest.mark.parametrize(
    ("of", "applied_generations", "words"),
    [
        (PROMOTING, {"g": 2}, "gateway g applies traffic generation 2, not 3 yet"),
        (BACK, {"g": 2}, "gateway g applies traffic generation 2, not 3 yet"),
        (PROMOTING, OBEYED, ""),
        (PROMOTING, None, ""),
        (JUDGED, {"g": 2}, ""),
        (state("RollingBack", "Rolling"), {"g": 2}, ""),
    ],
)
def test_the_gateway_that_is_waited_for(of, applied_generations, words):
    assert lagging_gateway(of, inputs(said={"applied_generations": applied_generations})) == words
