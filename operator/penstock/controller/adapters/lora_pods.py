"""Engine pods that take LoRA adapters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.informer import Key
from penstock.controller.process.failures import Failures
from penstock.controller.watching.children import by_service, children_of
from penstock.core.formats.addresses import host_port
from penstock.core.observed.lora_engine import LoraEngine, lora_engine
from penstock.core.observed.pods import ObservedPod
from penstock.core.spec.service import ENGINE_PORT


@dataclass(frozen=True, slots=True)
class LoraPod:
    """A ready engine that takes adapters. service: name of its InferenceService. address: host:port.

    side: revision and cohort, between which gateways divide the requests.
    """

    namespace: str
    service: str
    name: str
    address: str
    engine: LoraEngine
    side: str = ""

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    @property
    def service_key(self) -> Key:
        return self.namespace, self.service


def lora_pods(
    services: Mapping[Key, Object],
    deployments: Iterable[Object],
    pods: Iterable[Object],
    failures: Failures,
) -> dict[Key, list[LoraPod]]:
    """Ready engines that take adapters, by service. Those that terminate are left out.

    Users may create pods with the labels of engines: one that cannot be read affects its service alone.
    """
    by_key, deployments_by_key = by_service(pods), by_service(deployments)
    found: dict[Key, list[LoraPod]] = {}
    for key in by_key.keys() & services.keys():
        with failures.isolate_errors("adapters", *key):
            engines = {
                pod["metadata"]["name"]: (pod, engine)
                for pod in by_key[key]
                if (engine := lora_engine(pod)) is not None
            }
            if engines:
                own = deployments_by_key.get(key, ())
                _, observed = children_of(services[key], own, (pod for pod, _ in engines.values()))
                found[key] = [
                    _lora_pod(key, pod, engines[pod.name][1])
                    for pod in observed
                    if pod.is_active_engine and pod.is_ready and pod.address
                ]
    return found


def _lora_pod(key: Key, pod: ObservedPod, engine: LoraEngine) -> LoraPod:
    address, side = host_port(pod.address, ENGINE_PORT), f"{pod.revision}/{pod.cohort}"
    return LoraPod(*key, pod.name, address, engine, side)
