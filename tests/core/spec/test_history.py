"""The revision history: reading, numbering, deletion beyond the limit, and rollback."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.spec.history import (
    PODS_ANNOTATION,
    RESTARTED_AT,
    STABLE_ANNOTATION,
    PinnedPods,
    Revision,
    changed_paths,
    excess_revisions,
    restart_patch,
    rollback_patch,
    undo_target,
    updated_entry,
)
from penstock.core.spec.service import REVISION_LABEL

ENGINE = {"name": "engine", "image": "i"}
SERVE = {"spec": {"containers": [{"name": "side", "image": "s"}, ENGINE]}}
PREFLIGHT = {"containers": [ENGINE]}
PODS = PinnedPods(SERVE, PREFLIGHT)


def test_pods_are_recorded_as_text_that_is_the_same_for_the_same_pods() -> None:
    text = PODS.as_text()
    assert PinnedPods.of(text) == PODS
    assert PODS.image == "i"
    turned = PinnedPods({"spec": SERVE["spec"], "a": 1}, PREFLIGHT)
    same = PinnedPods({"a": 1, "spec": SERVE["spec"]}, PREFLIGHT)
    assert turned.as_text() == same.as_text()


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "no JSON",
        '{"serve":' * 100_000,
        "[]",
        json.dumps({"serve": SERVE}),
        json.dumps({"preflight": PREFLIGHT}),
        json.dumps({"serve": {"spec": {"containers": []}}, "preflight": PREFLIGHT}),
        json.dumps({"serve": {"spec": None}, "preflight": PREFLIGHT}),
        json.dumps(
            {"serve": {"spec": {"containers": [ENGINE | {"image": ""}]}}, "preflight": PREFLIGHT}
        ),
        json.dumps({"serve": SERVE, "preflight": {}}),
        json.dumps({"serve": SERVE, "preflight": {"containers": []}}),
    ],
)
def test_pods_that_cannot_be_read_are_none(text: str | None) -> None:
    assert PinnedPods.of(text) is None


def body(labels: Any = None, annotations: Any = None, **rest: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "n", "uid": "u"}
    if labels is not None:
        metadata["labels"] = labels
    if annotations is not None:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "revision": 3, **rest}


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (body(), Revision("n", "u", "", 3, {})),
        (body(data=None), Revision("n", "u", "", 3, {})),
        (
            body({REVISION_LABEL: "r"}, {}, data={"engine": {"seed": 1}}),
            Revision("n", "u", "r", 3, {"engine": {"seed": 1}}),
        ),
        (body(annotations={STABLE_ANNOTATION: "false"}), Revision("n", "u", "", 3, {})),
        (
            body(annotations={STABLE_ANNOTATION: "true", PODS_ANNOTATION: PODS.as_text()}),
            Revision("n", "u", "", 3, {}, PODS, was_stable=True),
        ),
    ],
)
def test_a_revision_is_what_its_object_says(read: dict[str, Any], expected: Revision) -> None:
    assert Revision.of(read) == expected


def entry(
    name: str, number: int, *, stable: bool = False, pods: PinnedPods | None = PODS
) -> Revision:
    return Revision(f"chat-{name}", f"u-{name}", name, number, {"of": name}, pods, stable)


A, B = entry("a", 4), entry("b", 6, stable=True)


@pytest.mark.parametrize(
    ("known", "revision", "latest", "stable", "expected"),
    [
        # A new revision is recorded only if the spec asks for it.
        ((), "c", True, False, Revision("", "", "c", 1, {"now": 1}, PODS, was_stable=False)),
        ((A, B), "c", True, True, Revision("", "", "c", 7, {"now": 1}, PODS, was_stable=True)),
        ((A, B), "c", False, True, None),
        # A known revision keeps its shape; the latest one gets the highest number.
        ((A, B), "a", True, False, replace(A, number=7)),
        ((A, B), "a", False, False, None),
        ((A, B), "b", True, False, None),
        ((A, B), "b", True, True, None),
        ((A, B), "a", False, True, replace(A, was_stable=True)),
        ((A, B), "a", True, True, replace(A, number=7, was_stable=True)),
        ((replace(A, pods=None), B), "a", False, False, A),
    ],
)
def test_the_record_that_is_due(
    known: tuple[Revision, ...],
    revision: str,
    latest: bool,
    stable: bool,
    expected: Revision | None,
) -> None:
    made = updated_entry(known, revision, {"now": 1}, PODS, is_latest=latest, is_stable=stable)
    assert made == expected


KEPT = (
    entry("a", 1, stable=True),
    entry("b", 2, stable=True),
    entry("c", 3),
    entry("d", 4, stable=True),
    entry("e", 5),
)


@pytest.mark.parametrize(
    ("current", "serving", "name"),
    [
        ("d", None, "b"), ("e", None, "d"), (None, None, "d"), ("x", None, "d"),
        ("d", "a", "a"), ("d", "d", "b"), ("e", "b", "b"), ("d", "c", "c"),
    ],
)  # fmt: skip
def test_undo_goes_back_to_what_serves_or_the_latest_that_was_stable(
    current: str | None, serving: str | None, name: str
) -> None:
    found = undo_target(KEPT, current, serving)
    assert found is not None
    assert found.revision == name
    assert undo_target(KEPT[2:3], None) is None


@pytest.mark.parametrize(
    ("in_use", "limit", "names"),
    [
        ("", 5, ""),
        ("", 6, ""),
        ("", 3, "ab"),
        # The revision that `undo` rolls back to is deleted last.
        ("", 1, "abce"),
        ("", 0, "abced"),
        ("d", 0, "aceb"),
        ("ae", 1, "bc"),
    ],
)
def test_the_oldest_that_nobody_uses_are_stale(in_use: str, limit: int, names: str) -> None:
    shuffled = (KEPT[3], KEPT[0], KEPT[4], KEPT[2], KEPT[1])
    assert (
        "".join(each.revision for each in excess_revisions(shuffled, set(in_use), limit)) == names
    )


@pytest.mark.parametrize(
    ("before", "after", "paths"),
    [
        ({}, {}, ()),
        ({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 2}}, ()),
        ({"b": 1, "a": 1}, {"b": 2, "a": 2}, ("a", "b")),
        ({"a": 1}, {}, ("a",)),
        ({}, {"a": {"b": 1, "c": {"d": 1}}}, ("a.b", "a.c.d")),
        ({"a": {"b": 1}}, {}, ("a.b",)),
        ({}, {"a": {}}, ("a",)),
        ({}, {"a": {"b": {}}}, ("a.b",)),
        ({"a": []}, {"a": {"b": 1}}, ("a",)),
        ({"a": {"b": 1}}, {"a": 1}, ("a",)),
        ({"a": 1}, {"a": {"b": 1}}, ("a",)),
        ({"e": {"x": {"y": 1, "z": 1}, "w": 1}}, {"e": {"x": {"y": 2, "z": 1}}}, ("e.w", "e.x.y")),
    ],
)
def test_changes_are_told_by_their_paths(before: Any, after: Any, paths: tuple[str, ...]) -> None:
    assert changed_paths(before, after) == paths


def test_the_way_back_gives_the_shape_and_leaves_the_rest() -> None:
    spec = {"engine": {"seed": 1}, "template": {"x": 1}, "scaling": {"min": 1}}
    patch = rollback_patch(
        spec, {"engine": {"seed": 2}, "other": 1}, ("engine", "template", "model")
    )
    assert patch == [
        {"op": "add", "path": "/spec/engine", "value": {"seed": 2}},
        {"op": "remove", "path": "/spec/template"},
    ]


SHAPES = st.dictionaries(st.sampled_from("abc"), st.integers(0, 2))


@given(SHAPES, SHAPES)
def test_after_the_way_back_nothing_differs_from_the_shape(
    spec: dict[str, int], shape: dict[str, int]
) -> None:
    now = dict(spec)
    for each in rollback_patch(spec, shape, "abc"):
        name = each["path"].removeprefix("/spec/")
        if each["op"] == "add":
            now[name] = each["value"]
        else:
            del now[name]
    assert now == shape
    assert changed_paths(now, shape) == ()


@pytest.mark.parametrize(
    "template", [None, {}, {"spec": {"a": 1}, "metadata": {"labels": {"b": "c"}}}]
)
def test_a_restart_adds_its_moment_to_the_template(template: Any) -> None:
    spec = {} if template is None else {"template": template}
    [patch] = restart_patch(spec, "now")
    metadata = {**(template or {}).get("metadata", {}), "annotations": {RESTARTED_AT: "now"}}
    assert patch == {
        "op": "add",
        "path": "/spec/template",
        "value": {**(template or {}), "metadata": metadata},
    }


def test_a_second_restart_is_another_one() -> None:
    template = restart_patch({}, "then")[0]["value"]
    [patch] = restart_patch({"template": template}, "now")
    assert patch["value"]["metadata"]["annotations"] == {RESTARTED_AT: "now"}
