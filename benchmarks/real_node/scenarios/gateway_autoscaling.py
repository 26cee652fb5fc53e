"""The chart's HorizontalPodAutoscaler scales gateways by the CPU use of the metrics API, up and down."""

import json

import yaml
from benchmarks.real_node.lab import ENGINE_RESOURCES, ROOT, Lab
from tests.support.cluster.helm import CHART

from penstock.chart.names import GATEWAY, NAMESPACE
from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import DEPLOYMENTS
from penstock.clients.machine.clock import monotonic
from penstock.core.spec.service import Object
from penstock.demo.load import End, Load, Workload, corpus
from penstock.demo.stage import Stage, poll_until

NAME = "autoscaled"
MIN_REPLICAS, MAX_REPLICAS = 2, 3
AUTOSCALING = {
    "enabled": True,
    "minReplicas": MIN_REPLICAS,
    "maxReplicas": MAX_REPLICAS,
    # In percent of the request of 250m: the engine leaves less than a core to its gateways and clients here.
    "targetCpuUtilizationPercentage": 20,
    "scaleDownStabilizationSeconds": 20,
}
CLIENTS = 16
WITHIN_S = 240


async def run(lab: Lab) -> dict[str, object]:
    async with lab.stage_in_namespace(NAME) as stage:
        stage.apply(service())
        await stage.wait_for_engines(NAME, 1, within_s=240)
        workload = Workload(NAME, corpus(ROOT), prompt_words=20, max_tokens=96)
        async with Load(lab.cluster.gateway_url, workload) as load:
            load.set_clients(1)
            values = lab.out / "autoscaling.json"
            values.write_text(json.dumps({"gateway": {"autoscaling": AUTOSCALING}}))
            await lab.helm("upgrade", CHART, "--reset-then-reuse-values", f"--values={values}")
            try:
                figures = await scale(stage, load)
            finally:
                await lab.helm("rollback")
            await load.finish()
        bad = [outcome for outcome in load.outcomes if outcome.end is not End.DONE]
        assert not bad, (len(bad), bad[:3])
        return figures | {"requests": len(load.outcomes), "failed": 0}


def service() -> Object:
    """Build the demo's service with one engine, under another name."""
    made: Object = yaml.safe_load((ROOT / "examples" / "tiny-model.yaml").read_text())
    made["metadata"]["name"] = NAME
    made["spec"]["scaling"] = {"minReplicas": 1, "maxReplicas": 1}
    made["spec"]["resources"] = ENGINE_RESOURCES
    return made


async def scale(stage: Stage, load: Load) -> dict[str, object]:
    """Wait until the autoscaler has added a gateway under load, and removed it after the load."""
    await wait_for_gateways(stage, MIN_REPLICAS)
    load.set_clients(CLIENTS)
    up_s = await wait_for_gateways(stage, MAX_REPLICAS)
    shown = stage.kubectl("get", "hpa", GATEWAY, "-n", NAMESPACE, "--no-headers").split()
    load.set_clients(1)
    down_s = await wait_for_gateways(stage, MIN_REPLICAS)
    return {
        "gateways": f"{MIN_REPLICAS} -> {MAX_REPLICAS} -> {MIN_REPLICAS}",
        "up_after_s": round(up_s),
        "down_after_s": round(down_s),
        "autoscaler_shows": " ".join(shown[2:4]),
    }


async def wait_for_gateways(stage: Stage, number: int) -> float:
    """Wait until so many gateways are wanted and ready, and return the seconds. Raises TimeoutError."""
    started_s = monotonic()
    try:
        await poll_until(
            lambda: has_gateways(stage.kube, number),
            within_s=WITHIN_S, what=f"{number} gateways are ready",
        )  # fmt: skip
    except TimeoutError as error:
        seen = stage.kubectl("describe", "hpa", GATEWAY, "-n", NAMESPACE)
        raise TimeoutError(f"{error}: {seen}") from error
    return monotonic() - started_s


async def has_gateways(kube: Kube, number: int) -> bool:
    deployment = await kube.get(DEPLOYMENTS, NAMESPACE, GATEWAY)
    status = deployment.get("status", {})
    replicas: object = deployment["spec"]["replicas"]
    return number == replicas and number == status.get("readyReplicas")
