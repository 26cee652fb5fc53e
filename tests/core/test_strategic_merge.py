"""Strategic merge of what the schema leaves open: it never raises; the API server refuses what is wrong."""

from typing import Any

import pytest

from penstock.core.strategic_merge import merge

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
