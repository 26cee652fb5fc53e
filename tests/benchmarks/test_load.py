"""Loads of the panel: the same from the same seed, of all classes, within the ranges."""

from collections import Counter

import pytest
from benchmarks.simulator.panel.lengths import NAMES
from benchmarks.simulator.panel.load import CLOSED, KINDS, MAX_REPLICAS, Load, draw_load
from benchmarks.simulator.panel.shapes import area

from penstock.sim.workload.generate import Rate

SEEDS = range(2000, 2048)


@pytest.fixture(scope="module")
def loads() -> list[Load]:
    return [draw_load(seed) for seed in SEEDS]


def test_a_seed_gives_the_same_load(loads: list[Load]) -> None:
    assert [draw_load(load.seed) for load in loads] == loads
    assert len({load.scenario.model_dump_json() for load in loads}) == len(loads)


def test_all_classes_occur_equally_often(loads: list[Load]) -> None:
    assert Counter(load.kind for load in loads) == dict.fromkeys(KINDS, len(loads) // len(KINDS))
    lengths = Counter(load.lengths for load in loads)
    assert lengths == dict.fromkeys(NAMES, len(loads) // len(NAMES))
    assert len({(load.kind, load.lengths) for load in loads}) == len(KINDS) * len(NAMES)


def test_drawn_values_are_within_their_ranges(loads: list[Load]) -> None:
    for load in loads:
        service = load.service
        assert service.startup_s is not None
        assert 20 <= service.startup_s <= 300
        assert 0.5 <= load.cv <= 15
        assert 1 <= load.replicas <= 40
        assert 1800 <= load.scenario.duration_s <= 4 * 3600
        assert load.scenario.duration_s >= 12 * service.startup_s
        assert service.initial_replicas is not None
        assert 1 <= service.initial_replicas <= MAX_REPLICAS


def test_the_rate_has_the_drawn_mean(loads: list[Load]) -> None:
    for load in loads:
        workload = load.service.workload
        if load.kind == CLOSED:
            continue
        assert isinstance(workload, Rate)
        assert area(workload.points) == pytest.approx(load.expected_requests, rel=1e-6)
        assert workload.points[-1][0] == pytest.approx(load.scenario.duration_s)
