import pytest

from penstock.core.formats.json_merge import difference, if_unchanged, merged

# The examples of RFC 7386, appendix A, whose target is an object.
EXAMPLES = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"a": "foo"}, None, None),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("stored", "patch", "expected"), EXAMPLES)
def test_examples_of_the_standard(stored, patch, expected):
    assert merged(stored, patch) == expected
    assert merged(expected, patch) == expected


@pytest.mark.parametrize(
    ("stored", "wanted", "patch"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1, "b": 2}, {"a": 1}, {"b": None}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 3}}, {"a": {"x": 3, "y": None}}),
        ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
        ({"a": 1}, {"a": {"x": 1}}, {"a": {"x": 1}}),
        ({}, {"a": {"x": []}}, {"a": {"x": []}}),
    ],
)
def test_difference(stored: object, wanted: object, patch: object) -> None:
    assert difference(stored, wanted) == patch
    assert merged(stored, patch) == wanted


def test_a_patch_of_an_unchanged_object_keeps_the_fields_that_it_removes():
    stored = {"metadata": {"uid": "u1", "resourceVersion": "7", "name": "a"}}
    patch = {"metadata": {"labels": {"a": None}}, "status": {"phase": None}}
    assert if_unchanged(stored, patch) == {
        "metadata": {"labels": {"a": None}, "uid": "u1", "resourceVersion": "7"},
        "status": {"phase": None},
    }
