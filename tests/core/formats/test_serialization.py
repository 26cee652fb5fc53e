"""Records as JSON and back, to the bit; and what is none is refused with its place."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.formats.serialization import DecodeError, deserialize, serialize
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.signals import (
    EngineReading,
    GatewayReading,
    Missing,
    Observation,
    PodView,
)


@dataclass(frozen=True, slots=True)
class Leaf:
    number: float
    count: int = 3


@dataclass(frozen=True, slots=True)
class Other:
    word: str


@dataclass(frozen=True, slots=True)
class Tree:
    kind: Literal["oak", "elm"]
    leaf: Leaf | Other | None
    leaves: tuple[Leaf, ...] = ()
    pair: tuple[float, int] = (0.5, 1)
    names: frozenset[str] = frozenset()
    by_name: Mapping[str, Leaf] = field(default_factory=dict)
    flag: bool = False
    height: float | None = None


numbers = st.floats(allow_nan=False, allow_infinity=False)
leaves = st.builds(Leaf, numbers, st.integers())
trees = st.builds(
    Tree,
    st.sampled_from(["oak", "elm"]),
    leaves | st.builds(Other, st.text()) | st.none(),
    st.lists(leaves, max_size=3).map(tuple),
    st.tuples(numbers, st.integers()),
    st.frozensets(st.text(max_size=3)),
    st.dictionaries(st.text(), leaves, max_size=2),
    st.booleans(),
    st.none() | numbers,
)


@given(trees)
def test_a_record_comes_back_to_the_bit(tree: Tree) -> None:
    text = json.dumps(serialize(tree))
    back = deserialize(Tree, json.loads(text))
    assert back == tree
    assert json.dumps(serialize(back)) == text  # tells -0.0 from 0.0


counts = st.integers(0, 2**53)
histograms = st.builds(Histogram, st.just((0.1, 1.0)), st.tuples(counts, counts, counts), numbers)
engines = st.builds(
    EngineReading, at_s=numbers, kv_usage=numbers, ttft_s=histograms, itl_s=histograms
)
gateways = st.builds(
    GatewayReading, at_s=numbers, oldest_wait_s=numbers, ttft_s=histograms, tpot_s=histograms
)
missing = st.builds(Missing, st.text(), st.text())
pods = st.builds(
    PodView,
    st.text(),
    st.sampled_from(["Starting", "Ready", "Draining"]),
    numbers,
    st.none() | numbers,
    st.none() | missing | engines,
)
observations = st.builds(
    Observation,
    numbers,
    st.lists(pods, max_size=3).map(tuple),
    st.integers(0, 9),
    st.none() | missing | gateways,
)


@given(observations)
def test_what_is_seen_comes_back_to_the_bit(seen: Observation) -> None:
    assert deserialize(Observation, json.loads(json.dumps(serialize(seen)))) == seen


GOOD = {"kind": "oak", "leaf": {"number": 1.5}}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"kind": "fir"}, "Tree.kind is 'fir'"),
        ({"leaf": {"number": "1"}}, "Tree.leaf.number is '1'"),
        ({"leaf": {"number": math.nan}}, "Tree.leaf.number is 'nan'"),
        ({"leaf": {"number": True}}, "Tree.leaf.number is 'True'"),
        ({"leaf": {"number": 1.0, "count": 1.5}}, "Tree.leaf.count is '1.5'"),
        ({"leaf": {"length": 1}}, "Tree.leaf is none of Leaf | Other | NoneType"),
        ({"leaf": []}, "Tree.leaf is none of Leaf | Other | NoneType"),
        ({"leaves": [{"number": 1.0}, 5]}, "Tree.leaves[1] is '5'"),
        ({"leaves": {}}, "Tree.leaves is '{}'"),
        ({"pair": [1.0]}, "Tree.pair has 1 of 2 parts"),
        ({"names": ["a", 5]}, "Tree.names[1] is '5'"),
        ({"height": 10**400}, f"Tree.height is '1{'0' * 59}'"),
        ({"by_name": {"a": {}}}, "Tree.by_name.a lacks number"),
        ({"flag": 1}, "Tree.flag is '1'"),
        ({"color": 1}, "Tree has no color"),
    ],
)
def test_what_is_no_record_is_refused_with_its_place(
    changed: dict[str, object], reason: str
) -> None:
    assert deserialize(Tree, GOOD) == Tree("oak", Leaf(1.5))
    with pytest.raises(DecodeError) as refused:
        deserialize(Tree, GOOD | changed)
    assert str(refused.value) == reason
