"""Manifests of a service's pods: engines, and the preflight that checks the model first."""

import hashlib
import json
from copy import deepcopy
from dataclasses import replace

from penstock.core.formats.strategic_merge import merge
from penstock.core.manifests import restricted
from penstock.core.manifests.placement import (
    add_shared_memory,
    device_flags,
    place,
    size_variables,
)
from penstock.core.observed.children import ObservedDeployment
from penstock.core.spec.history import PinnedPods
from penstock.core.spec.service import (
    COHORT_LABEL,
    ENGINE_CONTAINER,
    ENGINE_PORT,
    ENGINE_PORT_NAME,
    MANAGED_BY,
    MANAGED_LABEL,
    PRE_STOP_S,
    PREFLIGHT,
    REVISION_LABEL,
    ROLE_LABEL,
    SERVE,
    SERVICE_LABEL,
    TEMPLATE_HASH,
    TERMINATION_OVERHEAD_S,
    VARIANT_LABEL,
    Object,
    ServiceSpec,
)

MODEL_MOUNT = "/models"


def labels(spec: ServiceSpec, revision: str, role: str) -> dict[str, str]:
    """Labels of a child object. role: serve, preflight or evaluation."""
    return {
        MANAGED_LABEL: MANAGED_BY,
        SERVICE_LABEL: spec.name,
        REVISION_LABEL: revision,
        ROLE_LABEL: role,
    }


def owner(spec: ServiceSpec) -> Object:
    """Owner reference to the service, so that Kubernetes deletes the object with it."""
    return {
        "apiVersion": "serving.penstock.dev/v1alpha1",
        "kind": "InferenceService",
        "name": spec.name,
        "uid": spec.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def deployment_name(spec: ServiceSpec, revision: str, cohort: str = "", variant: str = "") -> str:
    """Name of a Deployment; unlike that of the pods, it tells cohort and variant."""
    return "-".join(part for part in (spec.name, revision, cohort, variant) if part)


def preflight_name(spec: ServiceSpec, revision: str) -> str:
    return f"{spec.name}-{revision}-preflight"


def own_pods(spec: ServiceSpec, revision: str, image: str) -> PinnedPods:
    """The pods of a new revision, as this version of Penstock builds them."""
    serve = merge({"metadata": {}, "spec": _serve_pod(spec, image)}, spec.template)
    restricted.restrict_added(serve["spec"], ENGINE_CONTAINER)
    # Set after the merge: operator, gateway and Deployment select pods by these.
    own = labels(spec, revision, SERVE)
    serve["metadata"]["labels"] = serve["metadata"].get("labels", {}) | own
    preflight = _pod(spec, image, "preflight")
    container = preflight["containers"][0]
    container["args"] += ["--termination-log", "/dev/termination-log"]
    # The preflight only reads headers. It checks the engine's resources, but does not need them.
    container["resources"] = {
        "requests": {"cpu": "100m", "memory": "256Mi"},
        "limits": {"memory": "256Mi"},
    }
    return PinnedPods(serve, _run_once(merge(preflight, _pod_overrides(spec))))


def adopted_pods(spec: ServiceSpec, revision: str, live: ObservedDeployment) -> PinnedPods:
    """The pods of a revision whose earlier version of Penstock did not record them, from a Deployment.

    The API server's defaults in the template stay: they make no difference to its pods.
    """
    template = deepcopy(live.body["spec"]["template"])
    metadata = template["metadata"]
    metadata.pop("creationTimestamp", None)
    for label in (COHORT_LABEL, VARIANT_LABEL):
        metadata["labels"].pop(label, None)
    if live.variant:
        template["spec"] = place(
            template["spec"], spec, _overrides(spec), spec.resources.manifest()
        )
    image = PinnedPods(template, {}).image
    return replace(own_pods(spec, revision, image), serve=template)


def deployment(
    spec: ServiceSpec, revision: str, pods: PinnedPods, cohort: str = "", variant: str = ""
) -> Object:
    """The Deployment of one revision, cohort and variant. spec: as placed on the variant.

    It leaves spec.replicas to the field manager of the scaler.
    """
    side = {COHORT_LABEL: cohort, VARIANT_LABEL: variant}
    side = {label: value for label, value in side.items() if value}
    template = merge(pods.serve, {"metadata": {"labels": side}})
    if variant:
        template["spec"] = place(
            template["spec"], spec, _overrides(spec), spec.resources.manifest()
        )
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": deployment_name(spec, revision, cohort, variant),
            "namespace": spec.namespace,
            "labels": labels(spec, revision, SERVE) | side,
            "annotations": {TEMPLATE_HASH: _hash(template)},
            "ownerReferences": [owner(spec)],
        },
        "spec": {
            "selector": {
                "matchLabels": {SERVICE_LABEL: spec.name, REVISION_LABEL: revision} | side
            },
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "progressDeadlineSeconds": 600,
            "template": template,
        },
    }


def preflight(spec: ServiceSpec, revision: str, pods: PinnedPods, variant: str = "") -> Object:
    """The preflight pod: checks the model once, and reports the result in its termination message.

    spec: as placed on the variant.
    """
    pod = pods.preflight
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": preflight_name(spec, revision),
            "namespace": spec.namespace,
            "labels": labels(spec, revision, PREFLIGHT),
            "ownerReferences": [owner(spec)],
        },
        "spec": _run_once(place(pod, spec, _pod_overrides(spec))) if variant else pod,
    }


def _overrides(spec: ServiceSpec) -> Object:
    """The part of the pod spec that the user's template or a variant sets."""
    found: Object = spec.template.get("spec", {})
    return found


def _run_once(pod: Object) -> Object:
    """The pod spec with restartPolicy Never, which overrides the user's template."""
    return pod | {"restartPolicy": "Never"}


def _pod_overrides(spec: ServiceSpec) -> Object:
    return {key: value for key, value in _overrides(spec).items() if key != "containers"}


def _hash(template: Object) -> str:
    """Hash of a pod template, 16 hexadecimal digits, to detect outdated Deployments.

    Comparing fields would not suffice: a field that was removed from the template looks like a default of
    the API server in the live object.
    """
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:16]


def _serve_pod(spec: ServiceSpec, image: str) -> Object:
    pod = _pod(spec, image, "serve")
    pod["terminationGracePeriodSeconds"] = spec.termination_grace_s
    container = pod["containers"][0]
    container["args"] += [
        f"--served-model-name={spec.model_name}",
        "--host=$(POD_IP)",
        f"--port={ENGINE_PORT}",
        f"--shutdown-timeout={spec.termination_grace_s - TERMINATION_OVERHEAD_S}",
        "--enable-prompt-tokens-details",  # canaries compare the prefix-hit rates of revisions
    ]
    container |= {
        "ports": [{"name": ENGINE_PORT_NAME, "containerPort": ENGINE_PORT, "protocol": "TCP"}],
        "resources": spec.resources.manifest(),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_S}}},
        # 600 s for loading weights, with a short period so that readiness is noticed within 1 s.
        "startupProbe": _probe("/ready", period_s=1, failures=600),
        "readinessProbe": _probe("/ready", period_s=2, failures=2),
        # 60 s until a restart, because a step on a busy CPU may block the process for seconds.
        "livenessProbe": _probe("/health", period_s=10, failures=6),
    }
    return pod


def _pod(spec: ServiceSpec, image: str, command: str) -> Object:
    """The pod spec shared by preflight and engine: model volume, sizing flags, restricted profile."""
    volume, path = _model_volume(spec.model_uri)
    env: list[Object] = [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        *size_variables(spec),
    ]
    pod: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": deepcopy(restricted.POD),
        "containers": [
            {
                "name": ENGINE_CONTAINER,
                "image": image,
                "command": ["penstock-engine"],
                "args": [command, path, *_sizing_flags(spec)],
                "env": env,
                "securityContext": deepcopy(restricted.CONTAINER),
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [
                    {"name": "model", "mountPath": MODEL_MOUNT, "readOnly": True},
                    {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own
                ],
            }
        ],
        "volumes": [{"name": "model", **volume}, {"name": "tmp", "emptyDir": {}}],
    }
    add_shared_memory(pod, spec)
    return pod


def _sizing_flags(spec: ServiceSpec) -> list[str]:
    flags = [
        f"--max-num-seqs={spec.max_num_seqs}",
        f"--max-num-batched-tokens={spec.max_num_batched_tokens}",
        f"--block-size={spec.block_size}",
        f"--dtype={spec.dtype}",
        f"--gpu-memory-utilization={spec.memory_utilization_percent / 100:g}",
        "--enable-prefix-caching" if spec.prefix_caching else "--no-enable-prefix-caching",
        *device_flags(spec),
    ]
    if spec.seed is not None:
        flags.append(f"--seed={spec.seed}")
    if spec.max_model_len is not None:
        flags.append(f"--max-model-len={spec.max_model_len}")
    if spec.kv_memory_bytes is not None:
        flags.append(f"--kv-cache-memory-bytes={spec.kv_memory_bytes}")
    return flags


def _model_volume(uri: str) -> tuple[Object, str]:
    """The model's volume source, and its path in the container."""
    scheme, _, rest = uri.partition("://")
    if scheme == "pvc":
        claim, _, path = rest.partition("/")
        source: Object = {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
        return source, f"{MODEL_MOUNT}/{path}".rstrip("/")
    return {"hostPath": {"path": rest, "type": "Directory"}}, MODEL_MOUNT


def _probe(path: str, *, period_s: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": ENGINE_PORT_NAME, "scheme": "HTTP"},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": failures,
    }
