"""Durations, quantities, percentages and decimals: pydantic, the API server and core objects agree."""

import asyncio
from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError

from penstock.api.generation.crdgen import schema_of
from penstock.api.schema.rules import Model
from penstock.api.schema.scalars import (
    MAX_DECIMAL_LENGTH,
    SIGNED_DECIMAL_PATTERN,
    Duration,
    IntOrPercent,
    Percent,
    PositiveDuration,
    Quantity,
    decimal,
)
from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import CRDS, DEPLOYMENTS, PODS, Resource
from penstock.core.formats.quantity import parse_duration_s
from penstock.errors import KubeError, NotFound, Rejected

Attainment = Annotated[str, decimal(0.5, 0.9999), Field(max_length=MAX_DECIMAL_LENGTH)]
Bound = Annotated[
    str, decimal(-1e15, 1e15, SIGNED_DECIMAL_PATTERN), Field(max_length=MAX_DECIMAL_LENGTH)
]


class Sample(Model):
    """Model with a field of each scalar type."""

    duration: Duration | None = Field(default=None, description="A duration.")
    timeout: PositiveDuration | None = Field(default=None, description="A duration above zero.")
    quantity: Quantity | None = Field(default=None, description="A quantity.")
    quantities: dict[str, Quantity] | None = Field(
        default=None, description="Quantities.", max_length=4
    )
    pods: IntOrPercent | None = Field(default=None, description="A number of pods.")
    attainment: Attainment | None = Field(default=None, description="A fraction.")
    bound: Bound | None = Field(default=None, description="A signed number.")
    percent: Percent | None = Field(default=None, description="A percentage.")


SAMPLES = Resource("test.penstock.dev/v1", "samples")
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "samples.test.penstock.dev"},
    "spec": {
        "group": "test.penstock.dev",
        "scope": "Namespaced",
        "names": {"kind": "Sample", "plural": "samples", "singular": "sample"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": schema_of(Sample)},
                    }
                },
            }
        ],
    },
}

QUANTITIES: list[Any] = [
    0, 2, -1, "0", "1", "1.5", ".5", "5.", "+1", "-1", "-0", "500m", "1e3", "1E3", "1e-3", "1e+3",
    "1E", "1Ei", "512Mi", "4Gi", "0.6Gi", "10k", "10K", "10Ki", "1n", "1u", "1e", "1e1.5", "", " 1",
    "1 ", "1\n", "1GB", "2 Gi", "lots", "1.2.3", "--1", ".", "+", "m", True, [], {}, "0x10", "1_0",
    "٣", "007", "1i", "1mi", "999999999999999999999",
]  # fmt: skip
# Pods may have these: the parser trims spaces, and takes a number without digits for 0. The usual schema
# of a quantity in a CRD refuses them.
NO_QUANTITIES = (" 1", "1 ", ".", "+", "m")
PODS_COUNTS: list[Any] = [
    0, 1, 1000, -1, "25%", "0%", "100%", "150%", "-1%", "25", "1.5%", "%", "", "a", "25 %", "025%",
    True,
]  # fmt: skip
GOOD_DURATIONS = ["0s", "500ms", "30s", "1h30m", "1m1h1m", "1h2m3s4ms", "99999h", "00001s"]
BAD_DURATIONS: list[Any] = [
    "", "60", "1.5s", "-1s", "1d", "1us", "100000s", "1h1m1s1ms1s", "1h ", "1 h", "1S", "s", 60, "٣s",
]  # fmt: skip
CASES: list[tuple[str, Any, bool]] = [
    *[("duration", text, True) for text in GOOD_DURATIONS],
    *[("duration", text, False) for text in BAD_DURATIONS],
    ("timeout", "1ms", True),
    ("timeout", "0h0m", False),
    ("timeout", "0.5s", False),
    ("attainment", "0.99", True),
    ("attainment", "0.5", True),
    ("attainment", "0.9999", True),
    ("attainment", "0.99990", True),
    ("attainment", "0.99991", False),
    ("attainment", "0.4", False),
    ("attainment", "1", False),
    ("attainment", "-0.9", False),
    ("attainment", ".9", False),
    ("attainment", "9e-1", False),
    ("attainment", "0.9\n", False),
    ("attainment", "0." + "9" * 30, False),
    ("attainment", 0.9, False),
    ("attainment", "NaN", False),
    ("bound", "-1.5", True),
    ("bound", "-0", True),
    ("bound", "1000000000000000", True),
    ("bound", "1000000000000001", False),
    ("bound", "+1", False),
    ("bound", "Inf", False),
    ("percent", 1, True),
    ("percent", 100, True),
    ("percent", 0, False),
    ("percent", 101, False),
    ("percent", 0.5, False),
    ("percent", "5", False),
]


def pydantic_says(field: str, value: Any) -> str | None:
    """The reason for a refusal; None if the value is accepted."""
    try:
        Sample.model_validate({field: value})
    except ValidationError as error:
        return str(error)
    return None


async def refusal(kube: Kube, resource: Resource, body: dict[str, Any]) -> str | None:
    """The API server's reason for a refusal; None if it accepts the object."""
    try:
        await kube.create(resource, "default", body, dryRun="All", fieldValidation="Strict")
    except (Rejected, KubeError) as error:
        return str(error)
    return None


async def sample_says(kube: Kube, field: str, value: Any) -> str | None:
    body = {"apiVersion": SAMPLES.api, "kind": "Sample", "metadata": {"name": "x"}}
    return await refusal(kube, SAMPLES, body | {"spec": {field: value}})


async def pod_says(kube: Kube, quantity: Any) -> str | None:
    """The API server's refusal of a pod with this limit; None if it accepts the pod."""
    container = {
        "name": "x", "image": "x", "resources": {"limits": {"ephemeral-storage": quantity}}
    }  # fmt: skip
    return await refusal(kube, PODS, pod("Pod", "v1") | {"spec": {"containers": [container]}})


async def deployment_says(kube: Kube, surge: Any) -> str | None:
    """The API server's refusal of a Deployment with this maxSurge; None if it accepts it."""
    labels = {"app": "x"}
    spec = {
        "selector": {"matchLabels": labels},
        "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1}},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "x", "image": "x"}]},
        },
    }
    return await refusal(kube, DEPLOYMENTS, pod("Deployment", "apps/v1") | {"spec": spec})


def pod(kind: str, api: str) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "x"}}


@pytest.fixture
async def samples(kube: Kube) -> Kube:
    """An API server that has the kind Sample."""
    try:
        await kube.get(CRDS, None, CRD["metadata"]["name"])  # type: ignore[index]
    except NotFound:
        await kube.create(CRDS, None, CRD)
    for _ in range(100):
        if await sample_says(kube, "duration", "1s") is None:
            return kube
        await asyncio.sleep(0.1)
    raise AssertionError(await sample_says(kube, "duration", "1s"))


@pytest.mark.parametrize(("field", "value", "is_valid"), CASES)
def test_pydantic(field: str, value: Any, is_valid: bool) -> None:
    assert (pydantic_says(field, value) is None) == is_valid


@pytest.mark.cluster
async def test_the_api_server_agrees(samples: Kube) -> None:
    wrong = [
        (field, value, said)
        for field, value, is_valid in CASES
        if ((said := await sample_says(samples, field, value)) is None) != is_valid
    ]
    assert wrong == []


@pytest.mark.cluster
async def test_quantities_are_those_of_pods(samples: Kube) -> None:
    different = {}
    for value in QUANTITIES:
        core = await pod_says(samples, value) is None
        ours = {
            pydantic_says(field, inner) is None
            for field, inner in (("quantity", value), ("quantities", {"cpu": value}))
        }
        theirs = {
            await sample_says(samples, field, inner) is None
            for field, inner in (("quantity", value), ("quantities", {"cpu": value}))
        }
        assert len(ours) == 1
        assert ours == theirs, value
        if ours != {core}:
            different[str(value)] = core
    assert different == dict.fromkeys(NO_QUANTITIES, True)


@pytest.mark.cluster
async def test_numbers_of_pods_are_those_of_deployments(samples: Kube) -> None:
    for value in PODS_COUNTS:
        wanted = await deployment_says(samples, value) is None
        assert (pydantic_says("pods", value) is None) == wanted, value
        assert (await sample_says(samples, "pods", value) is None) == wanted, value


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("1h30m", 5400.0), ("1m1h1m", 3720.0), ("0s", 0.0)]
)
def test_duration_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds
