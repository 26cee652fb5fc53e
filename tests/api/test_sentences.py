"""Error messages for invalid specs are the same from pydantic and from a real API server."""

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.api.convert import InvalidService, to_core
from penstock.api.v1alpha1 import API_VERSION, KIND, InferenceServiceSpec
from penstock.clients.kube import Kube
from penstock.clients.resources import INFERENCE_SERVICES
from penstock.errors import Rejected

EVALUATION = {"image": "x", "timeout": "0s"}
CASES: list[tuple[dict[str, Any], str]] = [
    (
        {"template": {"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}}},
        "spec.template.metadata.labels must not have app.kubernetes.io/managed-by",
    ),
    (
        {"template": {"metadata": {"labels": {"serving.penstock.dev/cohort": "mine"}}}},
        "keys that begin with serving.penstock.dev/",
    ),
    (
        {"template": {"metadata": {"annotations": {"serving.penstock.dev/x": "y"}}}},
        "spec.template.metadata.annotations must not have",
    ),
    ({"rollout": {"progressDeadline": "0s"}}, "spec.rollout.progressDeadline must not be zero"),
    ({"rollout": {"canary": {"maxDuration": "0h0m"}}}, "canary.maxDuration must not be zero"),
    ({"rollout": {"canary": {"shadow": {"duration": "0s"}}}}, "shadow.duration must not be zero"),
    ({"rollout": {"canary": {"evaluation": EVALUATION}}}, "evaluation.timeout must not be zero"),
]


def spec_with(more: dict[str, Any]) -> dict[str, Any]:
    return {"model": {"uri": "pvc://models"}, **more}


@pytest.mark.parametrize(("more", "sentence"), CASES)
def test_pydantic(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as error:
        InferenceServiceSpec.model_validate(spec_with(more))
    assert sentence in str(error.value)


@pytest.mark.cluster
async def test_the_api_server(kube: Kube, namespace: str) -> None:
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "x"}}
    for more, sentence in CASES:
        with pytest.raises(Rejected) as error:
            await kube.create(INFERENCE_SERVICES, namespace, body | {"spec": spec_with(more)})
        assert sentence in str(error.value)


@pytest.mark.cluster
async def test_labels_of_the_users_own_are_taken(kube: Kube, namespace: str) -> None:
    template = {"metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}}}
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "x"}}
    made = await kube.create(
        INFERENCE_SERVICES, namespace, body | {"spec": spec_with({"template": template})}
    )
    assert made["spec"]["template"]["metadata"] == template["metadata"]


@pytest.mark.parametrize(
    "containers",
    [
        None,
        "engine",
        ["engine"],
        [{"name": {}}],
        [{"name": "engine", "$patch": "delete"}, {"name": "other", "image": "x"}],
        [{"name": "engine", "image": ""}],
        [{"name": "engine", "image": None}],
    ],
)
def test_a_template_keeps_the_engine_in_its_pod(containers: Any) -> None:
    """The schema leaves a pod's spec open."""
    metadata = {
        "name": "x", "namespace": "n", "uid": "u", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    spec = spec_with({"template": {"spec": {"containers": containers}}})
    with pytest.raises(InvalidService, match="must be a list that keeps the container engine"):
        to_core({"metadata": metadata, "spec": spec})
