"""Pod specs of an engine and of the preflight that checks its model, before the user's template."""

from collections.abc import Sequence
from copy import deepcopy

from penstock.core.manifests.model_fetch import fetch_models, read_headers
from penstock.core.manifests.own_container import own_container, own_pod
from penstock.core.manifests.placement import mount_shared_memory, shared_memory_gib
from penstock.core.runtimes import penstock
from penstock.core.runtimes.paths import CHAT_TEMPLATE_MOUNT, mounted_adapter_path
from penstock.core.runtimes.pod_models import mounted_models
from penstock.core.runtimes.table import runtime_of
from penstock.core.spec.adapter_sources import adapter_sources
from penstock.core.spec.model_location import ModelLocation
from penstock.core.spec.service import (
    ADAPTER_VOLUMES,
    CHAT_TEMPLATE_VOLUME,
    ENGINE_CONTAINER,
    ENGINE_PORT,
    ENGINE_PORT_NAME,
    EVENTS_PORT,
    EVENTS_PORT_NAME,
    EVENTS_REPLAY_PORT,
    EVENTS_REPLAY_PORT_NAME,
    PRE_STOP_S,
    Object,
    ServiceSpec,
)

# Variable of OpenTelemetry's SDKs for each setting of tracing.
TRACING_VARIABLES = {
    "tracing.exporterEndpoint": "OTEL_EXPORTER_OTLP_ENDPOINT",
    "tracing.sampler": "OTEL_TRACES_SAMPLER",
    "tracing.samplerArg": "OTEL_TRACES_SAMPLER_ARG",
}

# The preflight only reads headers: it checks the engine's resources, but does not need them. Both limits are
# set, as a quota may count them and then refuses pods without. Most checks need less than 256 MiB, that of
# 262,000 tokens needs 400, and files with which a check would need more than 1 GiB are refused.
PREFLIGHT_RESOURCES: Object = {
    "requests": {"cpu": "100m", "memory": "256Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}


def serve_pod(spec: ServiceSpec, image: str) -> Object:
    """The engine's pod. image: of the runtime Penstock; other runtimes have their own."""
    runtime = runtime_of(spec.settings)
    pod = _pod(spec, runtime.image or image, list(runtime.command), runtime.serve_args(spec))
    pod["terminationGracePeriodSeconds"] = spec.termination_grace_s
    container = pod["containers"][0]
    container["env"] += [*runtime.environment(spec), *_tracing_variables(spec)]
    container |= {
        "ports": _ports(spec),
        "resources": spec.resources.manifest(),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_S}}},
        # A short period, so that readiness is noticed within 1 s.
        "startupProbe": _probe(runtime.readiness_path, period_s=1, failures=runtime.startup_s),
        "readinessProbe": _probe(runtime.readiness_path, period_s=2, failures=2),
        # Restarts only after 60 s, because a step on a busy CPU may block the process for seconds.
        "livenessProbe": _probe(runtime.liveness_path, period_s=10, failures=6),
    }
    fetch_models(pod, spec, image)
    _mount_adapter_sources(pod, adapter_sources(spec))
    if size_gib := shared_memory_gib(spec):
        mount_shared_memory(pod, size_gib)
    return pod


def preflight_pod(spec: ServiceSpec, image: str) -> Object:
    """The preflight's pod. image: of the runtime Penstock, whose program checks models of all runtimes."""
    args = penstock.preflight_args(spec)
    pod = _pod(spec, image, list(penstock.RUNTIME.command), args)
    container = pod["containers"][0]
    container["env"] += penstock.environment(spec)
    container["resources"] = deepcopy(PREFLIGHT_RESOURCES)
    read_headers(pod, spec)
    return pod


def _pod(spec: ServiceSpec, image: str, command: list[str], args: list[str]) -> Object:
    """The pod spec that preflight and engine share: mounted files, and the restricted security context."""
    pod = own_pod(own_container(ENGINE_CONTAINER, image, command, args))
    for model in mounted_models(spec):
        _add_volume(pod, model.volume, _volume_source(model.uri), model.mount)
    if name := spec.settings.get("engine.parsers.chatTemplate.configMapKeyRef.name"):
        source = {"configMap": {"name": name}}
        _add_volume(pod, CHAT_TEMPLATE_VOLUME, source, CHAT_TEMPLATE_MOUNT)
    return pod


def _add_volume(pod: Object, name: str, source: Object, mount_path: str) -> None:
    pod["volumes"].append({"name": name, **source})
    mounts = pod["containers"][0]["volumeMounts"]
    mounts.append({"name": name, "mountPath": mount_path, "readOnly": True})


def _mount_adapter_sources(pod: Object, sources: Sequence[str]) -> None:
    """Mount each source of adapters read-only at the path that its URI determines.

    A claim of the model is mounted a second time: two volumes of one claim can keep a pod from starting.
    """
    mounts = pod["containers"][0]["volumeMounts"]
    for index, uri in enumerate(sources):
        source, path = _volume_source(uri), mounted_adapter_path(uri)
        same = (each["name"] for each in pod["volumes"] if each == {"name": each["name"], **source})
        if (name := next(same, None)) is not None:
            mounts.append({"name": name, "mountPath": path, "readOnly": True})
        else:
            _add_volume(pod, ADAPTER_VOLUMES[index], source, path)


def _ports(spec: ServiceSpec) -> list[Object]:
    ports = {ENGINE_PORT_NAME: ENGINE_PORT}
    if spec.settings.get("engine.kvCache.events.mode"):
        ports |= {
            EVENTS_PORT_NAME: EVENTS_PORT,
            EVENTS_REPLAY_PORT_NAME: EVENTS_REPLAY_PORT,
        }
    return [
        {"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()
    ]


def _tracing_variables(spec: ServiceSpec) -> list[Object]:
    return [
        {"name": name, "value": str(spec.settings[path])}
        for path, name in TRACING_VARIABLES.items()
        if path in spec.settings
    ]


def _volume_source(uri: str) -> Object:
    """Volume source of a model or of adapters."""
    location = ModelLocation.parse(uri)
    if location.claim is None:
        return {"hostPath": {"path": location.path, "type": "Directory"}}
    return {"persistentVolumeClaim": {"claimName": location.claim, "readOnly": True}}


def _probe(path: str, *, period_s: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": ENGINE_PORT_NAME, "scheme": "HTTP"},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": failures,
    }
