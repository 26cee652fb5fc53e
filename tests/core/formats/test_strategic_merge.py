"""Strategic merge: overrides laid over pod templates, and whether a live object has what was wanted.

What the schema leaves open never raises; the API server refuses what is wrong.
"""

from copy import deepcopy
from typing import Any

import pytest

from penstock.core.formats.strategic_merge import covers, is_keyed, merge

ENGINE: dict[str, Any] = {"name": "engine", "image": "i", "env": [{"name": "A", "value": "1"}]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"containers": ["engine"]},
        {"containers": [{"name": {}}]},
        {"containers": "engine"},
        {"volumes": [1]},
        {"volumes": [{"name": []}]},
    ],
)
def test_a_list_of_something_else_replaces_what_was_there(wrong: dict[str, Any]) -> None:
    base = {"containers": [ENGINE], "volumes": [{"name": "v"}]}
    assert merge(base, wrong) == base | wrong


def test_one_deeper_does_as_well() -> None:
    patch = {"containers": [{"name": "engine", "env": ["A=1"]}]}
    assert merge({"containers": [ENGINE]}, patch) == {"containers": [ENGINE | {"env": ["A=1"]}]}


A, B = {"name": "a", "x": 1}, {"name": "b", "x": 2}


@pytest.mark.parametrize(
    ("base", "patch", "merged"),
    [
        ({}, {}, {}),
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}, {"a": {"b": 1, "c": 3}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": None, "d": None}}, {"a": {"b": 1}}),
        ({}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": {"b": 1}}, {"a": 1}, {"a": 1}),
        # Lists that have a key merge by it, in the order of the base; others are replaced.
        ({"args": ["a", "b"]}, {"args": ["c"]}, {"args": ["c"]}),
        ({"other": [A]}, {"other": [B]}, {"other": [B]}),
        ({"env": [A, B]}, {"env": [{"name": "b", "y": 3}]}, {"env": [A, {**B, "y": 3}]}),
        ({"env": [A]}, {"env": [B]}, {"env": [A, B]}),
        ({"env": [A]}, {"env": []}, {"env": [A]}),
        ({}, {"env": [A]}, {"env": [A]}),
        ({"env": [A, B]}, {"env": [{"name": "a", "$patch": "delete"}]}, {"env": [B]}),
        ({"env": [A]}, {"env": [{"name": "c", "$patch": "delete"}]}, {"env": [A]}),
        ({"ports": [{"containerPort": 1}]}, {"ports": [{"containerPort": 2}]},
         {"ports": [{"containerPort": 1}, {"containerPort": 2}]}),
        ({"ports": [{"containerPort": 1, "protocol": "TCP"}]},
         {"ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 1, "protocol": "UDP"}]},
         {"ports": [{"containerPort": 1, "protocol": "TCP", "name": "a"},
                    {"containerPort": 1, "protocol": "UDP"}]}),
        ({"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1}, {"topologyKey": "zone"}]},
         {"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1}, {"topologyKey": "zone"}]},
         {"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1}, {"topologyKey": "zone"}]}),
        # Lists of other values are replaced.
        ({"env": [A]}, {"env": ["b"]}, {"env": ["b"]}),
        ({"env": ["a"]}, {"env": [B]}, {"env": [B]}),
        ({"env": [A]}, {"env": "b"}, {"env": "b"}),
        ({"env": [A]}, {"env": [{"name": ["b"]}]}, {"env": [{"name": ["b"]}]}),
        ({"containers": [{"name": "e", "env": [A]}]}, {"containers": [{"name": "e", "env": [B]}]},
         {"containers": [{"name": "e", "env": [A, B]}]}),
    ],
)  # fmt: skip
def test_a_patch_is_laid_over_a_base(base: Any, patch: Any, merged: Any) -> None:
    before = deepcopy((base, patch))
    assert merge(base, patch) == merged
    assert (base, patch) == before


@pytest.mark.parametrize(
    ("value", "keyed"),
    [
        ([], True), ([A, B], True), ([{"name": 1}], True), ([{}], True), ([{"name": None}], True),
        ([A, "b"], False), ([{"name": {}}], False), ("a", False), (None, False), ({"name": "a"}, False),
    ],
)  # fmt: skip
def test_lists_that_merge_are_lists_of_objects_with_a_key(value: Any, keyed: bool) -> None:
    assert is_keyed(value, "name") is keyed


@pytest.mark.parametrize(
    ("live", "wanted", "expected"),
    [
        # The API server omits empty fields.
        (None, {}, True), (None, [], True), (None, "", True), (None, False, True), (None, 0, True),
        (0, 0, True), ([], {}, True), ({"a": 1}, {}, False), ([1], [], False), (True, False, False),
        ("a", "", False), (1, 0, False), (0, 1, False),
        (1, 1, True), ("a", "a", True), ("a", "b", False), (None, "a", False), (True, True, True),
        ({"a": 1}, {"a": 1, "b": 2}, False), ({"a": 1, "b": 2}, {"b": 2}, True),
        ([{"a": 1}], {"a": 1}, False), ({"a": 1}, [{"a": 1}], False),
        ({"a": {"b": 1}}, {"a": {"c": 1}}, False),
        ([1, 2], [1, 2], True), ([1, 2], [1, 3], False), ([1, 2], [1], False), ([1], [1, 2], False),
        ([{"a": 1, "b": 2}, {"c": 3}], [{"a": 1}, {"c": 3}], True),
        ("1", "1000m", True), (1, "1", True), ("1Gi", "1G", False), ("1x", "1y", False),
        ("x", "1", False), ("1", "x", False),
    ],
)  # fmt: skip
def test_a_live_object_covers_what_was_wanted(live: Any, wanted: Any, expected: bool) -> None:
    assert covers(live, wanted) is expected


def test_a_strategic_merge_joins_lists_by_their_keys() -> None:
    base = {"spec": {"containers": [{"name": "engine", "env": [{"name": "A", "value": "1"}]}]}}
    patch = {
        "spec": {
            "nodeSelector": {"x": "y"},
            "containers": [
                {"name": "engine", "env": [{"name": "B", "value": "2"}]},
                {"name": "side", "image": "i"},
            ],
        }
    }
    merged = merge(base, patch)
    assert [c["name"] for c in merged["spec"]["containers"]] == ["engine", "side"]
    assert [e["name"] for e in merged["spec"]["containers"][0]["env"]] == ["A", "B"]
    assert base["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]


def test_null_and_patch_directives_remove() -> None:
    assert merge({"a": 1, "b": 2}, {"a": None}) == {"b": 2}
    base = {"volumes": [{"name": "tmp"}, {"name": "model"}]}
    removed = merge(base, {"volumes": [{"name": "tmp", "$patch": "delete"}]})
    assert removed == {"volumes": [{"name": "model"}]}


@pytest.mark.parametrize(
    ("live", "wanted", "expected"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"cpu": "1"}, {"cpu": "1000m"}, True),
        ({"memory": "1Gi"}, {"memory": "1024Mi"}, True),
        ({}, {"readOnly": False}, True),
        ([{"n": 1, "x": 2}], [{"n": 1}], True),
        ([{"n": 1}, {"n": 2}], [{"n": 1}], False),
        (None, {"a": 1}, False),
    ],
)
def test_live_objects_cover_what_was_wanted(live: Any, wanted: Any, expected: bool) -> None:
    assert covers(live, wanted) is expected
