"""A cluster with two gateways, two engines and a batch server, and kills of its parts."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from benchmarks.cluster.campaigns.interactive_load import Objectives
from tests.support.cluster.batch_server import batch_values, prepare_batch_server
from tests.support.cluster.second_gateway import two_gateways
from tests.support.cluster.service_proxy import ServiceProxy

from penstock.chart.names import BATCH, GATEWAY, NAMESPACE, OPERATOR, selector
from penstock.clients.kubernetes.client import Object, connect
from penstock.clients.kubernetes.resources import PODS
from penstock.core.observed.pods import ObservedPod
from penstock.core.spec.service import SERVICE_LABEL
from penstock.demo.stage import Stage
from penstock.local import cluster as clusters
from penstock.local import faults
from penstock.local.install import install

ROOT = Path(__file__).parents[3]
NUM_ENGINES = 2
START_LIMIT_S = 240.0


@dataclass(frozen=True, slots=True)
class BatchStage:
    """A cluster in which a service runs. gateway_url: of both gateways."""

    stage: Stage
    service: str
    gateway_url: str

    @property
    def kills(self) -> list[Callable[[], Awaitable[None]]]:
        """Kills of a gateway, the operator and an engine, which start again as Kubernetes has it."""
        return [self._kill_gateway, self._kill_operator, self._kill_engine]

    async def kill_batch_server(self) -> None:
        await self._kill(NAMESPACE, selector(BATCH), "batch")

    async def _kill_gateway(self) -> None:
        await self._kill(NAMESPACE, selector(GATEWAY), "gateway")

    async def _kill_operator(self) -> None:
        await self._kill(NAMESPACE, selector(OPERATOR), "operator")

    async def _kill_engine(self) -> None:
        await self._kill("default", {SERVICE_LABEL: self.service}, "engine")

    async def _kill(self, namespace: str, labels: dict[str, str], container: str) -> None:
        """Kill the container of the first ready pod with these labels."""
        text = ",".join(f"{key}={value}" for key, value in labels.items())
        pods, _ = await self.stage.kube.list(PODS, namespace, labelSelector=text)
        names = [each.name for each in map(ObservedPod.of, pods) if each.is_ready]
        faults.kill(self.stage.cluster, names[0], container, namespace=namespace)
        print(f"killed {names[0]}", flush=True)


@asynccontextmanager
async def batch_stage(
    service: str, models: Path, objectives: Objectives
) -> AsyncIterator[BatchStage]:
    """Run a cluster with Penstock, its batch server, and a service of the tiny model."""
    with clusters.temporary("batch-kills", say=print) as cluster:
        async with (
            await connect(cluster.kubeconfig) as kube,
            ServiceProxy(kube, NAMESPACE, BATCH) as batch,
            ServiceProxy(kube, NAMESPACE, GATEWAY) as gateway,
        ):
            stage = Stage(cluster, kube)
            stage.mount_models(models)
            prepare_batch_server(stage)
            await install(cluster, say=print, values=batch_values(batch.url, gateway.url))
            with two_gateways(stage):
                stage.apply(_manifest(service, objectives))
                await stage.wait_for_engines(service, NUM_ENGINES, within_s=START_LIMIT_S)
                yield BatchStage(stage, service, gateway.url)
            await stage.close()


def _manifest(service: str, objectives: Objectives) -> Object:
    made: Object = yaml.safe_load((ROOT / "examples" / "tiny-model.yaml").read_text())
    made["metadata"]["name"] = service
    spec = made["spec"]
    spec["engine"]["kvCache"]["memory"] = "32Mi"
    spec["scaling"] = {"minReplicas": NUM_ENGINES, "maxReplicas": NUM_ENGINES}
    spec["objectives"] = {
        "ttft": f"{objectives.ttft_s:g}s",
        "tpot": f"{1000 * objectives.tpot_s:g}ms",
    }
    return made
