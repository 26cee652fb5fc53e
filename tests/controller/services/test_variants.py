"""A service with two variants against a real API server: one Deployment each, until it is removed."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.controller.disruption_budgets import listed_budgets

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import DEPLOYMENTS, INFERENCE_SERVICES, PODS
from penstock.controller.names.model_names import ModelNames
from penstock.controller.services.reconciler import Reconciler
from penstock.core.scaling.report import ScalingReport
from penstock.core.spec.service import ROLE_LABEL, SERVE, VARIANT_LABEL

pytestmark = pytest.mark.cluster

# The claim does not exist: pods stay unscheduled, and the test writes their status.
SPOT = {
    "name": "spot", "pricePerHour": "1", "nodeSelector": {"pool": "spot"},
    "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
}  # fmt: skip
STRONG = {
    "name": "strong", "pricePerHour": "3.5",
    "resources": {"limits": {"cpu": 2, "nvidia.com/gpu": 1}},
}  # fmt: skip
SPEC = {
    "model": {"uri": "pvc://none/tiny"},
    "objectives": {"ttft": "2s", "tpot": "100ms"},
    "scaling": {"maxReplicas": 4},
    "variants": [SPOT, STRONG],
}


class Stage:
    """A service; `until` writes its pods' status, as there are no nodes."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self.kube, self.namespace = kube, namespace
        self.report: ScalingReport | None = None
        self.reconciler = Reconciler(
            kube, "penstock", services=dict, names=ModelNames(),
            budgets=listed_budgets(kube), scaling=lambda *_: self.report,
            judgement=lambda *_: None, applied_generations=lambda _: {},
            gateway_url="", gone=lambda _: None,
        )  # fmt: skip

    def decide(self, **by_variant: int) -> None:
        total = sum(by_variant.values())
        at = "2026-01-01T00:00:00Z"
        self.report = ScalingReport(total, "tried", "ScaleUp", True, at, (), by_variant)

    async def patched(self, pod: Mapping[str, Any], **status: Any) -> None:
        name = pod["metadata"]["name"]
        await self.kube.merge(
            PODS, self.namespace, name, {"status": status}, manager="test", sub="status"
        )

    async def wait_until(self, holds: Callable[[], Any], *, get_ready: bool = True) -> None:
        """Reconcile and make pods ready until `holds` returns true."""
        for _ in range(150):
            await self.reconciler.reconcile((self.namespace, "chat"))
            for pod in (await self.kube.list(PODS, self.namespace))[0]:
                if pod["metadata"]["labels"].get(ROLE_LABEL) != SERVE:
                    if pod["status"]["phase"] != "Succeeded":
                        await self.patched(pod, phase="Succeeded")
                elif get_ready and not _is_ready(pod):
                    now = pod["metadata"]["creationTimestamp"]
                    ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
                    await self.patched(pod, phase="Running", podIP="127.9.9.9", conditions=[ready])
            if await holds():
                return
            await asyncio.sleep(0.1)
        raise AssertionError(await self.replicas())

    async def deployments(self) -> dict[str, Any]:
        found, _ = await self.kube.list(DEPLOYMENTS, self.namespace)
        return {d["metadata"]["labels"].get(VARIANT_LABEL, ""): d for d in found}

    async def replicas(self) -> dict[str, int]:
        return {name: d["spec"]["replicas"] for name, d in (await self.deployments()).items()}

    async def status(self) -> dict[str, dict[str, int]]:
        body = await self.kube.get(INFERENCE_SERVICES, self.namespace, "chat")
        return {v["name"]: v for v in body["status"].get("variants", [])}

    async def change(self, spec: Any) -> None:
        await self.kube.merge(
            INFERENCE_SERVICES, self.namespace, "chat", {"spec": spec}, manager="test"
        )


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@pytest.fixture
async def stage(kube: Kube, namespace: str) -> Stage:
    body = {
        "apiVersion": "serving.penstock.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": namespace},
        "spec": SPEC,
    }
    await kube.create(INFERENCE_SERVICES, namespace, body)
    return Stage(kube, namespace)


async def test_each_variant_has_a_deployment_until_it_is_removed_from_the_spec(
    stage: Stage,
) -> None:
    async def are_ready(**counts: int) -> bool:
        found = await stage.status()
        return await stage.replicas() == counts and all(
            found[name]["readyReplicas"] == count for name, count in counts.items()
        )

    # The first variant serves before anything is decided.
    await stage.wait_until(lambda: are_ready(spot=1))
    [spot] = (await stage.deployments()).values()
    pod = spot["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "spot"}
    assert [each["key"] for each in pod["tolerations"]] == ["spot"]
    revision = spot["metadata"]["name"].split("-")[1]

    stage.decide(spot=2, strong=1)
    await stage.wait_until(lambda: are_ready(spot=2, strong=1))
    found = await stage.deployments()
    container = found["strong"]["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "--device=cuda" in container["args"]
    assert "nodeSelector" not in found["strong"]["spec"]["template"]["spec"]
    assert found["strong"]["metadata"]["name"] == f"chat-{revision}-strong"

    stage.decide(spot=0, strong=1)
    await stage.wait_until(lambda: are_ready(spot=0, strong=1))

    # A removed variant serves until the others are ready. The revision stays the same.
    stage.decide(spot=1, strong=1)
    await stage.wait_until(lambda: are_ready(spot=1, strong=1))
    await stage.change({"variants": [SPOT]})
    stage.decide(spot=2)

    async def is_scaled() -> bool:
        return (await stage.replicas()).get("spot") == 2

    await stage.wait_until(is_scaled, get_ready=False)
    assert await stage.replicas() == {"spot": 2, "strong": 1}

    async def is_alone() -> bool:
        return await are_ready(spot=2) and set(await stage.status()) == {"spot"}

    await stage.wait_until(is_alone)
    assert {d["metadata"]["name"] for d in (await stage.deployments()).values()} == {
        f"chat-{revision}-spot"
    }
