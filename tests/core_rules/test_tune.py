"""The tuner: who is beaten by nobody, who attains for least, and where to look next."""

from penstock.core.rules.registry import PUBLISHED
from penstock.sim.scenario import load
from penstock.sim.tune import Point, Tuner, cheapest, frontier


def point(attainment, gpu_hours, **knobs):
    return Point("kpa", knobs, attainment, gpu_hours, gpu_hours / 2)


A, B, C, D = point(0.95, 5), point(0.99, 7), point(0.98, 8), point(0.995, 9)


def test_the_frontier_is_beaten_by_nobody_in_both():
    assert frontier([D, C, B, A]) == [A, B, D]
    assert frontier([]) == []


def test_the_cheapest_of_those_that_attain_within_the_tolerance():
    assert cheapest([A, B, C, D], 0.99) == B
    assert cheapest([A, B, C, D], 0.992) == B  # 0.2 % less counts
    assert cheapest([A, B, C, D], 0.993) == D
    assert cheapest([A, B, C, D], 0.999) is None


def test_it_goes_on_between_the_best_and_its_nearest_failures():
    tuner = Tuner(load("llm-d-ramp"))
    rest = {"stable_window_s": 60.0, "down_delay_s": 0.0}
    tried = [
        point(0.90, 4, target=48.0, **rest),
        point(0.95, 5, target=32.0, **rest),
        point(0.991, 6, target=24.0, **rest),
        point(0.999, 9, target=16.0, **rest),
        point(0.80, 3, target=25.0, stable_window_s=180.0, down_delay_s=0.0),  # another line
    ]
    assert list(tuner._between(PUBLISHED["kpa"], tried)) == [{"target": 28.0, **rest}]
    assert not list(tuner._between(PUBLISHED["kpa"], tried[:2]))  # nothing attains


def test_a_run_on_a_short_ramp_measures_one_point_for_all_seeds():
    world = load("llm-d-ramp").model_copy(update={"duration_s": 60.0, "tail_s": 120.0})
    [got] = Tuner(world, seeds=2).measured("static", [{"replicas": 3}])
    assert got.attainment == 1.0
    assert got.mean_replicas == 3.0
    assert got.gpu_hours == 2 * 3 * 60 / 3600
