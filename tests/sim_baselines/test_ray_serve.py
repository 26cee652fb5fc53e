"""Ray Serve: total over target, damped, after a delay without a break."""

import pytest

from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import Missing
from penstock.sim.baselines.ray_serve import RayServe


@pytest.mark.parametrize(
    ("requests", "ready", "up", "down", "replicas"),
    [
        (10, 2, 1.0, 1.0, 5),  # 10 / 2
        (11, 2, 1.0, 1.0, 6),
        (10, 2, 0.5, 1.0, 4),  # 2 + 0.5 x 3 = 3.5
        (2, 5, 1.0, 1.0, 1),
        (2, 5, 1.0, 0.5, 3),  # 5 - 0.5 x 4
        (8, 5, 1.0, 0.1, 4),  # 5 - 0.1 x 1 = 4.9 would stick at 5: one goes
    ],
)
def test_steps(gateway, engine, observe_pods, decide_all, requests, ready, up, down, replicas):
    rule = RayServe(
        upscaling_factor=up, downscaling_factor=down, upscale_delay_s=0.0, downscale_delay_s=0.0
    )
    observations = [observe_pods(0, [engine()] * ready, gateway=gateway(in_flight=requests))]
    assert decide_all(rule, observations)[0][0].desired == replicas


def test_up_after_30_s_without_a_break(gateway, engine, observe_pods, decide_all):
    def observations(calm_at):
        return [
            observe_pods(t, [engine()], gateway=gateway(in_flight=2 if t == calm_at else 8))
            for t in range(40)
        ]

    rule = RayServe(look_back_period_s=10.0)
    decisions, _ = decide_all(rule, observations(None))
    assert [d.desired for d in decisions].index(4) == 30
    decisions, _ = decide_all(
        rule, observations(20)
    )  # one report of 2 in the look-back: back to 1 for 10 s
    assert {d.desired for d in decisions} == {1}


def test_down_after_ten_minutes_and_to_zero_only_from_one(gateway, engine, observe_pods, simulate):
    rule = RayServe()
    look = lambda now, n: observe_pods(now, [engine()] * n, gateway=gateway())  # noqa: E731
    course = simulate(rule, look, 1300, start=5, bounds=Bounds(0, 8))
    assert course.index(1) == 600
    assert 1200 <= course.index(0) <= 1202


def test_reports_are_averaged_over_the_look_back(gateway, engine, observe_pods, decide_all):
    """Every 10 s: 0, 0 and 24 are 8 on average, 4 replicas."""
    rule = RayServe(upscale_delay_s=0.0)
    observations = [
        observe_pods(t, [engine()], gateway=gateway(in_flight=24 if t == 20 else 0))
        for t in range(21)
    ]
    assert decide_all(rule, observations)[0][-1].desired == 4


def test_no_report_holds(engine, observe_pods, decide_all):
    observations = [
        observe_pods(t, [engine()] * 3, gateway=Missing("gateway", "gone")) for t in range(5)
    ]
    decisions, _ = decide_all(RayServe(), observations)
    assert all(d.desired == 3 and not d.valid for d in decisions)


def test_from_zero_one_starts_at_once(gateway, observe_pods, decide_all):
    observations = [observe_pods(0, gateway=gateway(queued=5))]
    assert decide_all(RayServe(), observations, Bounds(0, 8))[0][0].desired == 1
