"""PodDisruptionBudgets: who gets one, who has one already."""

from typing import Any

import pytest

from penstock.core.manifests.disruption import budget
from penstock.core.observed.children import ObservedBudget
from penstock.core.observed.label_selector import selects

LABELS = {"app": "chat", "tier": "gold"}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "chat"}}, True),
        ({"matchLabels": {"app": "chat", "x": "y"}}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold"]}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}]}, False),
        ({"matchExpressions": [{"key": "none", "operator": "NotIn", "values": ["gold"]}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "Gt", "values": ["1"]}]}, False),
        (
            {
                "matchLabels": {"app": "chat"},
                "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}],
            },
            False,
        ),
    ],
)
def test_selectors(selector: Any, expected: bool) -> None:
    assert selects(selector, LABELS) is expected


def body(name: str, match_labels: Any, uid: str = "") -> Any:
    made = budget(name, "n", {}, match_labels)
    if uid:
        made["metadata"]["ownerReferences"] = [{"uid": uid}]
    return made


@pytest.mark.parametrize(
    ("budgets", "has_ours", "foreign"),
    [
        ([], False, ""),
        ([body("chat-engines", {}, "u")], True, ""),
        ([body("mine", {"app": "other"})], False, ""),
        ([body("mine", {"app": "chat"})], False, "mine"),
        ([body("chat-engines", {}, "u"), body("mine", {"tier": "gold"})], True, "mine"),
        # A deleted service's budget of the same name that is still there.
        ([body("chat-engines", {"app": "other"}, "before")], False, "chat-engines"),
    ],
)
def test_whose_they_are(budgets: Any, has_ours: bool, foreign: str) -> None:
    found = ObservedBudget.of(budgets, "chat-engines", "u", [{"metadata": {"labels": LABELS}}])
    assert (found.ours is not None, found.foreign) == (has_ours, foreign)
