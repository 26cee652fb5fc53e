"""Engine pods that take LoRA adapters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.clients.informer import Key, key_of
from penstock.clients.kube import Object
from penstock.controller.scale_targets import by_service, children_of
from penstock.core.formats.addresses import host_port
from penstock.core.observed.lora_engine import LoraEngine, lora_engine
from penstock.core.spec.service import ENGINE_PORT, SERVE


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
    services: Mapping[Key, Object], deployments: Iterable[Object], pods: Iterable[Object]
) -> dict[Key, list[LoraPod]]:
    """Ready engines that take adapters, by service. Those that terminate are left out."""
    able = [(pod, engine) for pod in pods if (engine := lora_engine(pod)) is not None]
    engines = {key_of(pod): engine for pod, engine in able}
    by_key, deployments_by_key = by_service(pod for pod, _ in able), by_service(deployments)
    found: dict[Key, list[LoraPod]] = {}
    for key, its_pods in by_key.items():
        if key not in services:
            continue
        _, observed = children_of(services[key], deployments_by_key.get(key, ()), its_pods)
        found[key] = [
            LoraPod(
                *key,
                pod.name,
                host_port(pod.address, ENGINE_PORT),
                engines[key[0], pod.name],
                f"{pod.revision}/{pod.cohort}",
            )
            for pod in observed
            if pod.role == SERVE and pod.is_ready and not pod.is_ending and pod.address
        ]
    return found
