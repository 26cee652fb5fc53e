"""The choice of an engine by what a request costs there."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.routing.cost import LOAD_FACTOR, Candidates, choose

NOW = 100.0


@dataclass
class Engine:
    """An engine with a millisecond for each token."""

    pod: str
    wait_s: float = 0.0
    step_s: float = 0.01
    token_s: float = 0.001
    num_active: int = 0
    kv_tokens: float = 0.0
    least_wait_s: float = 0.0

    @property
    def free_s(self):
        return NOW + self.wait_s


def chosen(*engines, tokens, output=0.0, draw=0.0, home=None):
    return engines[choose(Candidates(engines, tokens, output, NOW), draw, home)].pod


A, B, C = (Engine(name) for name in "abc")


@pytest.mark.parametrize(
    ("engines", "tokens", "expected"),
    [
        ((A, B), (1000, 200), "b"),  # b has most of the prompt
        ((A, Engine("b", wait_s=0.5)), (1000, 200), "b"),  # 0.8 s of prompt for 0.5 s of waiting
        ((A, Engine("b", wait_s=0.9)), (1000, 200), "a"),
        ((A, Engine("b", token_s=0.01)), (1000, 200), "a"),  # a slow engine
        ((A, Engine("b", wait_s=-5.0, least_wait_s=0.9)), (1000, 200), "a"),  # it is overdue
        ((A, Engine("b", num_active=8)), (1000, 1000), "a"),  # its requests would be delayed
        ((A, Engine("b", step_s=0.02)), (1000, 1000), "a"),
    ],
)
def test_the_least_time_wins(engines, tokens, expected):
    assert chosen(*engines, tokens=tokens) == expected


@given(st.floats(0, 1, exclude_max=True))
def test_the_draw_decides_between_equal_engines(draw):
    assert chosen(A, B, C, tokens=(9, 9, 9), draw=draw) == "abc"[int(3 * draw)]


def test_a_hot_prompt_does_not_overload_its_engine():
    """However much it has cached: beyond twice the mean load others take its requests."""
    for load, expected in ((3.9, "b"), (4.1, "a")):
        engines = [
            Engine("a", kv_tokens=1.0),
            Engine("b", kv_tokens=load),
            Engine("c", kv_tokens=1.0),
        ]
        mean = sum(each.kv_tokens for each in engines) / 3
        assert (load > LOAD_FACTOR * mean) is (expected == "a")
        assert chosen(*engines, tokens=(9000, 1, 9000)) == expected


@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=8
    ),
    st.floats(0, 1, exclude_max=True),
    st.none() | st.binary(max_size=16),
)
def test_the_load_of_the_chosen_engine_is_bounded(drawn, draw, home):
    """An engine beyond the bound may cost as much as the best one within, and have more cached."""
    loads = [load for load, _ in drawn]
    engines = [Engine(str(n), wait_s=1 - t, kv_tokens=load) for n, (load, t) in enumerate(drawn)]
    tokens = [1000.0 * t for _, t in drawn]
    found = int(chosen(*engines, tokens=tokens, draw=draw, home=home))
    assert loads[found] <= LOAD_FACTOR * sum(loads) / len(loads) or len(loads) == 1


def test_gateways_that_know_nothing_of_each_other_agree_on_a_home():
    homes = {key: chosen(A, B, C, tokens=(9, 9, 9), home=b"%d" % key) for key in range(300)}
    assert homes == {
        key: chosen(C, A, B, tokens=(9, 9, 9), draw=0.99, home=b"%d" % key) for key in range(300)
    }
    assert {name: list(homes.values()).count(name) > 70 for name in "abc"} == dict.fromkeys(
        "abc", True
    )
    without = {key: chosen(A, B, tokens=(9, 9), home=b"%d" % key) for key in range(300)}
    assert all(without[key] == name for key, name in homes.items() if name != "c")


def test_a_home_does_not_outweigh_what_it_costs():
    keys = [b"%d" % key for key in range(99)]
    assert {chosen(A, Engine("b", wait_s=0.9), tokens=(1000, 1000), home=key) for key in keys} == {
        "a"
    }
    assert {chosen(A, Engine("b", wait_s=0.1), tokens=(1000, 1000), home=key) for key in keys} == {
        "a",
        "b",
    }
