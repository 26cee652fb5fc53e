"""Error messages for invalid specs are the same from pydantic and from a real API server."""

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.api.conversion.convert import InvalidService, parse_service, to_core
from penstock.api.inferenceservice.kind import KIND, InferenceServiceSpec
from penstock.api.inferenceservice.resources import MIN_MEMORY
from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES
from penstock.core.formats.quantity import parse_quantity
from penstock.core.spec.service import API_VERSION
from penstock.errors import Rejected
from penstock_engine.memory.budget import PROGRAM_BYTES

EVALUATION = {"image": "x", "timeout": "0s"}


def canary(**settings: Any) -> dict[str, Any]:
    return {"rollout": {"strategy": "Canary", "canary": settings}}


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
    ({"resources": {"limits": {"memory": 10}}}, "must be at least 640Mi"),
    ({"resources": {"limits": {"memory": "671088639"}}}, "must be at least 640Mi"),
    ({"resources": {"requests": {"memory": "0.6Gi"}}}, "must be at least 640Mi"),
    (
        {"resources": {"limits": {"memory": "600000000000m"}}},
        "and KV cache; set it, such as to 2Gi",
    ),
    ({"resources": {"limits": {"memory": "plenty"}}}, "must be a quantity such as"),
    ({"rollout": {"progressDeadline": "0s"}}, "must not be zero"),
    (canary(maxDuration="0h0m"), "must not be zero"),
    (canary(mirror={"duration": "0s"}), "must not be zero"),
    (canary(evaluation=EVALUATION), "must not be zero"),
    (canary(minWeightPercent=9, maxWeightPercent=8), "must not be greater than maxWeightPercent"),
    (canary(alpha="0.5"), "must be from 0.0001 to 0.2"),
    (
        {"rollout": {"canary": {}}},
        "spec.rollout.canary requires strategy Canary; remove it, or set the strategy",
    ),
    (
        {"rollout": {"strategy": "Rolling", "rolling": {"maxSurge": "0%"}}},
        "maxSurge and maxUnavailable must not both be 0",
    ),
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
async def test_users_labels_are_accepted(kube: Kube, namespace: str) -> None:
    template = {"metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}}}
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "x"}}
    made = await kube.create(
        INFERENCE_SERVICES, namespace, body | {"spec": spec_with({"template": template})}
    )
    assert made["spec"]["template"]["metadata"] == template["metadata"]


METADATA = {
    "name": "x", "namespace": "n", "uid": "u", "generation": 1,
    "creationTimestamp": "2026-01-01T00:00:00Z",
}  # fmt: skip


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
    spec = spec_with({"template": {"spec": {"containers": containers}}})
    with pytest.raises(InvalidService, match="must be a list that keeps the container engine"):
        to_core({"metadata": METADATA, "spec": spec})


@pytest.mark.parametrize(
    ("own", "template", "is_refused"),
    [
        (None, 44, True),
        (None, 45, False),
        (None, 77, False),
        (90, 77, True),
        (90, None, False),
        (90, "1", False),
    ],
)
def test_a_template_does_not_shorten_the_time_to_drain(
    own: int | None, template: Any, is_refused: bool
) -> None:
    """Other types than numbers are refused by the API server, with the pods."""
    field = "terminationGracePeriodSeconds"
    spec = spec_with({"template": {"spec": {field: template}}} | ({field: own} if own else {}))
    body = {"metadata": METADATA, "spec": spec}
    if not is_refused:
        assert to_core(body).template["spec"] == {field: template}
        return
    with pytest.raises(InvalidService, match=f"seconds of spec.{field}, .*: change that field"):
        to_core(body)
    assert parse_service(body).template  # one that runs is read


def test_minimum_memory_is_the_engines_own_use() -> None:
    assert parse_quantity(MIN_MEMORY) == PROGRAM_BYTES
