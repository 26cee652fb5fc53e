"""The CRD on a real API server: invalid manifests are refused with a sentence, defaults are set."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel, Field, ValidationError
from tests.api.inferenceservice.refused_specs import (
    BAD,
    DRAFT,
    GOOD,
    METRIC,
    SECRET,
    drafts,
    evaluation,
)

from penstock.api.generation.crdgen import UnsupportedSchema, crds, inference_service_crd, schema_of
from penstock.api.inferenceservice.kind import InferenceServiceSpec
from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES
from penstock.errors import NotFound, Rejected


def manifest(spec: Any, name: str = "bad", namespace: str = "default") -> dict[str, Any]:
    return {
        "apiVersion": "serving.penstock.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


@pytest.mark.cluster
@pytest.mark.parametrize(("spec", "sentence"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
async def test_invalid_manifest_is_refused_with_a_sentence(
    kube: Kube, spec: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(Rejected) as refused:
        await kube.create(INFERENCE_SERVICES, "default", manifest(spec))
    assert sentence in str(refused.value)
    with pytest.raises(ValidationError):
        InferenceServiceSpec.model_validate(spec)


@pytest.mark.cluster
async def test_a_cache_with_nothing_but_a_size_has_one_error(kube: Kube) -> None:
    """The sentence on caches of type Node would mislead."""
    model = {**GOOD["model"], "cache": {"sizeLimit": "1Gi"}}
    with pytest.raises(Rejected) as refused:
        await kube.create(INFERENCE_SERVICES, "default", manifest({**GOOD, "model": model}))
    assert "spec.model.cache.claimName must be set, unless type is Node" in str(refused.value)
    assert "spec.model.cache.sizeLimit" not in str(refused.value)


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["Penstock", "VLLM"])
async def test_a_server_of_the_user_under_another_type_has_one_error(kube: Kube, kind: str) -> None:
    """Rules of type Custom do not apply: their messages would mislead."""
    runtime = {"type": kind, "custom": {"image": "server"}}
    with pytest.raises(Rejected) as refused:
        await kube.create(INFERENCE_SERVICES, "default", manifest({**GOOD, "runtime": runtime}))
    assert "spec.runtime.custom must be set with type Custom, and with no other" in str(
        refused.value
    )
    assert "cannot be scaled" not in str(refused.value)


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["a" * 41, "has.dots"])
async def test_name_too_long_for_pods_is_refused(kube: Kube, name: str) -> None:
    with pytest.raises(Rejected, match="at most 40 characters and no dots"):
        await kube.create(INFERENCE_SERVICES, "default", manifest(GOOD, name))


@pytest.mark.cluster
@pytest.mark.parametrize(
    "spec",
    [
        drafts("draft_model", model=DRAFT),
        drafts("suffix"),
        drafts("ngram_gpu", ngram={"promptLookupMax": 4}),
        # Methods of vLLM.
        drafts("medusa", model=DRAFT),
        drafts("mtp"),
        drafts("gemma4_mtp", model=DRAFT),
    ],
)
async def test_a_method_without_a_rule_may_have_a_draft_model(
    kube: Kube, namespace: str, spec: dict[str, Any]
) -> None:
    await kube.create(INFERENCE_SERVICES, namespace, manifest(spec, "drafts", namespace))
    InferenceServiceSpec.model_validate(spec)


ROLLOUTS = [
    {"strategy": "Recreate"},
    {"canary": None, "blueGreen": None},
    {"rolling": {"maxSurge": "25%"}},
    {"strategy": "Rolling", "rolling": {"maxSurge": 0, "maxUnavailable": "100%"}},
    {"strategy": "BlueGreen", "blueGreen": {"promotion": "Manual", "scaleDownDelay": "0s"}},
    {
        "strategy": "Canary",
        "canary": {
            "alpha": "0.05", "maxWeightPercent": 3, "sessionAffinity": {"type": "User"},
            "mirror": {}, "metrics": [METRIC | {"minimum": "-0.5"}],
            "evaluation": evaluation({"name": "A", "value": "", "valueFrom": SECRET}, {"name": "B"}),
        },
    },
]  # fmt: skip


@pytest.mark.cluster
@pytest.mark.parametrize("wanted", ROLLOUTS)
async def test_a_rollout_is_stored_as_it_was_written(
    kube: Kube, namespace: str, wanted: dict[str, Any]
) -> None:
    """The schema has a default for the strategy only; the operator applies the others."""
    spec = {**GOOD, "rollout": wanted}
    made = await kube.create(INFERENCE_SERVICES, namespace, manifest(spec, "r", namespace))
    given = {name: value for name, value in wanted.items() if value is not None}
    assert made["spec"]["rollout"] == {"strategy": "Rolling"} | given
    InferenceServiceSpec.model_validate(made["spec"])


def without_empty(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec without empty objects and lists, which the API server does not add."""
    made = {k: without_empty(v) if isinstance(v, dict) else v for k, v in spec.items()}
    return {k: v for k, v in made.items() if v not in ({}, [])}


@pytest.mark.cluster
async def test_api_server_sets_the_defaults(kube: Kube) -> None:
    made = await kube.create(INFERENCE_SERVICES, "default", manifest(GOOD, "defaults"))
    try:
        wanted = InferenceServiceSpec.model_validate(GOOD).model_dump(
            by_alias=True, exclude_none=True
        )
        assert without_empty(made["spec"]) == without_empty(wanted)
        assert "engine" not in made["spec"]
    finally:
        await kube.delete(INFERENCE_SERVICES, "default", "defaults")


@pytest.mark.cluster
async def test_scale_and_status_are_subresources(kube: Kube, namespace: str) -> None:
    external = {**GOOD, "scaling": {"mode": "External"}, "replicas": 1}
    await kube.create(INFERENCE_SERVICES, namespace, manifest(external, "s", namespace))
    await kube.scale(INFERENCE_SERVICES, namespace, "s", 2, manager="kubectl")
    body = {"status": {"replicas": 1, "selector": "a=b"}, "spec": {"replicas": 9}}
    await kube.merge(INFERENCE_SERVICES, namespace, "s", body, manager="t", sub="status")
    found = await kube.get(INFERENCE_SERVICES, namespace, "s")
    assert (found["spec"]["replicas"], found["status"]["replicas"]) == (2, 1)


@pytest.mark.cluster
async def test_delete_with_an_old_uid_deletes_nothing(kube: Kube, namespace: str) -> None:
    await kube.create(INFERENCE_SERVICES, namespace, manifest(GOOD, "keep", namespace))
    await kube.delete(INFERENCE_SERVICES, namespace, "keep", uid="another")
    assert await kube.get(INFERENCE_SERVICES, namespace, "keep")
    await kube.delete(INFERENCE_SERVICES, namespace, "keep")
    await asyncio.sleep(0)
    with pytest.raises(NotFound):
        await kube.get(INFERENCE_SERVICES, namespace, "keep")


def test_every_field_has_a_description() -> None:
    def walk(node: dict[str, Any], path: str) -> None:
        for name, child in node.get("properties", {}).items():
            if path or name != "metadata":
                assert child.get("description"), f"{path}.{name}"
            walk(child, f"{path}.{name}")

    version = inference_service_crd()["spec"]["versions"][0]
    walk(version["schema"]["openAPIV3Schema"], "")


def test_a_spec_has_neither_floats_nor_booleans() -> None:
    """Both are advised against for APIs of Kubernetes: a boolean cannot grow a third value."""
    for crd in crds():
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        text = json.dumps(schema["properties"]["spec"])
        assert '"type": "number"' not in text
        assert '"type": "boolean"' not in text


def test_a_list_without_a_list_type_raises() -> None:
    class Words(BaseModel):
        """A model."""

        field: list[str] = Field(description="Words.")

    with pytest.raises(UnsupportedSchema, match="no list type"):
        schema_of(Words)


def test_unsupported_schema_construct_raises() -> None:
    class Union(BaseModel):
        """A model."""

        field: int | str = Field(description="Either.")

    with pytest.raises(UnsupportedSchema, match="a union of 2 types"):
        schema_of(Union)
