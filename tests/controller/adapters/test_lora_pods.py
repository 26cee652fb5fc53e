"""Engine pods that take adapters."""

from penstock.controller.adapters.lora_pods import LoraPod, lora_pods
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.core.observed.lora_engine import LoraEngine

CREATED = "2026-01-01T00:00:00Z"


def service(namespace):
    return {
        "metadata": {
            "namespace": namespace,
            "name": "chat",
            "uid": "u",
            "creationTimestamp": CREATED,
        }
    }


def pod(namespace, name, slots="4", **changes):
    labels = {"serving.penstock.dev/service": "chat", "serving.penstock.dev/role": "serve"}
    metadata = {"namespace": namespace, "name": name, "uid": name, "labels": labels}
    metadata["creationTimestamp"] = "2026-01-01T00:00:05Z"
    status = {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    container = {"name": "engine", "args": [f"--max-loras={slots}"]}
    return {"metadata": metadata, "spec": {"containers": [container]}, "status": status} | changes


def read(*pods):
    metrics = OperatorMetrics()
    services = {(each, "chat"): service(each) for each in "ab"}
    found = lora_pods(services, [], pods, Failures(metrics))
    name = "penstock_operator_unexpected_errors_total"
    return found, metrics.registry.get_sample_value(name, {"loop": "adapters"})


def test_a_pod_that_cannot_be_read_affects_its_service_alone():
    engine = LoraPod("a", "chat", "x", "10.0.0.1:8000", LoraEngine("Penstock", 4), "/")
    broken = pod("b", "y", spec={"containers": [{"name": "engine", "args": [5]}]})
    assert read(pod("a", "x"), broken) == ({("a", "chat"): [engine]}, 1)
    assert read(pod("a", "x"), pod("b", "y", slots="9" * 5000)) == ({("a", "chat"): [engine]}, 0)


def test_a_service_whose_engines_are_not_ready_has_none():
    assert read(pod("a", "x", status={}), pod("c", "x")) == ({("a", "chat"): []}, 0)
