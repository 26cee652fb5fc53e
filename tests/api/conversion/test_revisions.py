"""Revision hashes of services: the fields that they cover, and recorded hashes that must not change."""

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.api.conversion.convert import InvalidService, parse_service, to_core
from penstock.api.conversion.settings import SETTINGS
from penstock.api.generation.crdgen import schema_of
from penstock.api.inferenceservice.engine_status import EngineStatus
from penstock.api.inferenceservice.kind import InferenceServiceSpec
from penstock.core.spec.fields import (
    FROZEN_DEFAULTS,
    NOT_HASHED,
    OTHER_FIELDS,
    REQUIRED,
    REVISION_FIELDS,
)
from penstock.core.spec.revision import hashed_document, revision_of
from penstock.core.spec.service import ServiceSpec

RECORDED = yaml.safe_load((Path(__file__).parent / "recorded_revisions.yaml").read_text())
HASHED = [*(field.path for field in REVISION_FIELDS), *SETTINGS]
KNOWN = [*HASHED, *OTHER_FIELDS]


def leaves(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Path and schema of each field, down to those that core lists or that have no fields."""
    for name, child in node["properties"].items():
        at = f"{path}.{name}" if path else name
        if "properties" in child and at not in KNOWN:
            yield from leaves(child, at)
        else:
            yield at, child


def paths(node: dict[str, Any], path: str = "") -> list[str]:
    return [at for at, _ in leaves(node, path)]


def test_every_field_of_the_spec_is_listed() -> None:
    assert sorted(paths(schema_of(InferenceServiceSpec))) == sorted(KNOWN)


def test_a_setting_that_is_enabled_or_disabled_is_a_mode() -> None:
    spec = leaves(schema_of(InferenceServiceSpec))
    switches = {at for at, node in spec if "Enabled" in node.get("enum", ())}
    assert switches == {at for at in SETTINGS if at.endswith(".mode")}
    assert switches >= {"engine.kvCache.prefixCaching.mode", "engine.parallelism.expert.mode"}


def test_the_status_shows_settings_under_the_paths_of_the_spec() -> None:
    shown = {*paths(schema_of(EngineStatus), "engine")}
    assert shown - {*KNOWN} == {"engine.device"}  # follows from spec.resources


def test_every_attribute_of_the_record_is_listed() -> None:
    hashed = [field.attribute for field in REVISION_FIELDS]
    assert sorted([*hashed, *NOT_HASHED]) == sorted(field.name for field in fields(ServiceSpec))


def body(spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {
        "namespace": "default", "name": "chat", "uid": "u", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return {"metadata": metadata, "spec": spec}


def service(spec: dict[str, Any]) -> ServiceSpec:
    return to_core(body(spec))


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["name"])
def test_a_recorded_revision_is_still_the_same(case: dict[str, Any]) -> None:
    assert revision_of(service(case["spec"])) == case["revision"]


def test_the_recorded_revisions_differ_and_set_every_field() -> None:
    assert len({case["revision"] for case in RECORDED}) == len(RECORDED)
    hashed = {path for case in RECORDED for path in hashed_document(service(case["spec"]))}
    assert hashed == {*HASHED}


def test_a_field_with_its_default_does_not_change_the_revision() -> None:
    """A user who writes down a default starts no rollout."""
    plain = service({"model": {"uri": "pvc://models"}})
    optional = [field for field in REVISION_FIELDS if field.default is not REQUIRED]
    defaults = {field.attribute: field.default for field in optional}
    assert hashed_document(plain).keys() == {
        f.path for f in REVISION_FIELDS if f.default is REQUIRED
    }
    written = replace(plain, settings=FROZEN_DEFAULTS, **defaults)
    assert revision_of(written) == revision_of(plain)


def test_a_better_default_of_a_later_version_changes_no_revision() -> None:
    """The operator takes another value for a field that the spec does not set."""
    for case in RECORDED:
        spec = service(case["spec"])
        if "terminationGracePeriodSeconds" not in case["spec"]:
            assert revision_of(replace(spec, termination_grace_s=90)) == case["revision"]
            written = case["spec"] | {"terminationGracePeriodSeconds": 90}
            assert revision_of(service(written)) != case["revision"]


def test_a_new_setting_changes_the_revision_of_a_spec_that_has_it() -> None:
    for case in RECORDED:
        spec = service(case["spec"])
        written = replace(spec, settings={**spec.settings, "engine.sparsity": "2:4"})
        assert revision_of(written) != case["revision"]


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ({"cpu": "2000m", "memory": "4096Mi"}, {"cpu": 2, "memory": "4Gi"}),
        ({"cpu": "0.5", "memory": 2**32}, {"cpu": "500m", "memory": "4Gi"}),
        ({"cpu": "1000m", "memory": "2048Mi"}, {}),
    ],
)
def test_quantities_written_otherwise_leave_the_revision_as_it_is(
    written: dict[str, Any], same: dict[str, Any]
) -> None:
    model = {"uri": "pvc://models"}
    first, second = (
        service({"model": model, "resources": {"limits": limits}}) for limits in (written, same)
    )
    assert revision_of(first) == revision_of(second)


def test_undo_to_a_revision_of_a_spec_with_a_field_of_a_newer_version_brings_back_the_revision() -> (
    None
):
    """The version that recorded the revision ignored the field, so its pods do not have it."""
    known = {"model": {"uri": "pvc://models"}, "engine": {"seed": 1}}
    newer = known | {"engine": {"seed": 1, "sparsity": "2:4"}}
    assert service(newer).recorded_fields == known
    assert revision_of(service(newer)) == revision_of(service(known))


@pytest.mark.parametrize("cache", [{"blockSize": 16}, {"prefixCaching": {"mode": "Enabled"}}])
def test_penstocks_default_is_a_change_for_vllm_which_has_others(cache: dict[str, Any]) -> None:
    unset = {"model": {"uri": "pvc://models/chat"}, "runtime": {"type": "VLLM"}}
    made = service({**unset, "engine": {"kvCache": cache}})
    assert revision_of(made) != revision_of(service(unset))


def test_a_stable_revision_is_read_although_its_variants_have_other_accelerators_now() -> None:
    variant = {
        "name": "a", "pricePerHour": "1", "resources": {"limits": {"nvidia.com/gpu": 4}}
    }  # fmt: skip
    spec = {
        "model": {"uri": "pvc://models"},
        "engine": {"parallelism": {"tensor": 2}},
        "objectives": {"ttft": "1s", "tpot": "100ms"},
        "variants": [variant],
    }
    with pytest.raises(InvalidService, match="variants\\[a\\]"):
        to_core(body(spec))
    variant["resources"] = {"limits": {"nvidia.com/gpu": 2}}
    suits = service(spec)
    variant["resources"] = {"limits": {"nvidia.com/gpu": 4}}
    assert revision_of(parse_service(body(spec))) == revision_of(suits)
