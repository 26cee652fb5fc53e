"""Fields that differ between two revisions: only those with another value, defaults included."""

from typing import Any

import pytest

from penstock.api.conversion.past_specs import spec_of_revision
from penstock.core.spec.changes import changed_fields

MODEL = {"model": {"uri": "pvc://models/tiny"}}
BODY = {
    "metadata": {
        "name": "chat", "namespace": "default", "uid": "u", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": MODEL,
}  # fmt: skip


def changes(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, ...]:
    specs = [spec_of_revision(BODY, MODEL | recorded) for recorded in (before, after)]
    assert specs[0] is not None
    assert specs[1] is not None
    return changed_fields(specs[0], specs[1])


GPU = {"nvidia.com/gpu": 1}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {}, ()),
        # Defaults that are written down, and values that are written in another way.
        ({}, {"engine": {"dtype": "auto", "kvCache": {"blockSize": 16}}}, ()),
        ({"runtime": {"type": "Penstock"}}, {}, ()),
        ({}, {"engine": {"parallelism": {}}, "template": {}}, ()),
        ({}, {"resources": {"limits": {"cpu": "1", "memory": "2Gi"}}}, ()),
        (
            {"engine": {"kvCache": {"memory": "1Gi"}}},
            {"engine": {"kvCache": {"memory": "1024Mi"}}},
            (),
        ),
        ({}, {"terminationGracePeriodSeconds": 45, "engine": {"seed": 1}}, ("engine.seed",)),
        # Other values.
        ({"engine": {"dtype": "float32"}}, {"engine": {"dtype": "auto"}}, ("engine.dtype",)),
        ({"engine": {"extraArgs": ["-a"]}}, {}, ("engine.extraArgs",)),
        (
            {},
            {"resources": {"limits": {"memory": "4Gi", "cpu": "1"} | GPU}},
            ("resources.limits.memory", "resources.limits.nvidia.com/gpu"),
        ),
        (
            {"template": {"metadata": {"labels": {"a": "1"}}}},
            {"template": {"metadata": {"labels": {"a": "2"}}}},
            ("template.metadata.labels.a",),
        ),
        ({}, {"model": {"uri": "pvc://models/large"}}, ("model.uri",)),
        (
            {},
            {
                "runtime": {
                    "type": "Custom",
                    "custom": {"image": "a", "metrics": {"dialect": "VLLM"}},
                }
            },
            ("runtime.custom.image", "runtime.custom.metrics.dialect", "runtime.type"),
        ),
    ],
)
def test_changed_fields(
    before: dict[str, Any], after: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert changes(before, after) == expected


def test_a_record_that_cannot_be_read_has_no_spec() -> None:
    assert spec_of_revision(BODY, {"model": {"uri": 7}}) is None
