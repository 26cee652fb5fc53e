"""Manifests of a service's Deployments, and of the preflight that checks the model first."""

import hashlib
import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

from penstock.core.formats.strategic_merge import is_keyed, merge
from penstock.core.manifests import restricted
from penstock.core.manifests.engine_pod import preflight_pod, serve_pod
from penstock.core.manifests.model_fetch import engine_share, with_template_fields
from penstock.core.manifests.placement import place
from penstock.core.observed.children import ObservedDeployment
from penstock.core.runtimes.table import runtime_of
from penstock.core.spec.history import PinnedPods
from penstock.core.spec.service import (
    COHORT_LABEL,
    ENGINE_CONTAINER,
    MANAGED_BY,
    MANAGED_LABEL,
    PREFLIGHT,
    REVISION_LABEL,
    ROLE_LABEL,
    SERVE,
    SERVICE_LABEL,
    TEMPLATE_HASH,
    VARIANT_LABEL,
    Object,
    ServiceSpec,
)
from penstock.core.spec.settings import PENSTOCK

# Fields of the engine's container in the user's template that Penstock's other programs of the pod have too.
PREFLIGHT_FIELDS = ("name", "env", "envFrom", "volumeMounts")


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
    """Name of a Deployment of one revision, cohort and variant."""
    return "-".join(part for part in (spec.name, revision, cohort, variant) if part)


def preflight_name(spec: ServiceSpec, revision: str, variant: str = "") -> str:
    return "-".join(part for part in (spec.name, revision, variant, "preflight") if part)


def own_pods(spec: ServiceSpec, revision: str, image: str) -> PinnedPods:
    """The pods of a new revision, as this version of Penstock builds them."""
    serve = merge({"metadata": {}, "spec": serve_pod(spec, image)}, spec.template)
    restricted.restrict_added(serve["spec"], ENGINE_CONTAINER)
    with_template_fields(serve["spec"], _program_fields(spec))
    # Set after the merge: operator, gateway and Deployment select pods by these.
    own = labels(spec, revision, SERVE)
    serve["metadata"]["labels"] = serve["metadata"].get("labels", {}) | own
    preflight = merge(preflight_pod(spec, image), program_overrides(spec))
    return PinnedPods(serve, _run_once(preflight))


def adopted_pods(spec: ServiceSpec, revision: str, live: ObservedDeployment) -> PinnedPods:
    """The pods of a revision that an earlier version of Penstock did not record, read from its Deployment.

    The API server's defaults in the template stay: they do not change its pods.
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

    It has no spec.replicas; `with_replicas` adds them.
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
            "paused": False,  # a paused one would take over no later template
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


def with_replicas(deployment: Object, replicas: int) -> Object:
    """The Deployment with spec.replicas.

    Every apply must state them: the API server resets a field that an apply leaves out.
    """
    return deployment | {"spec": deployment["spec"] | {"replicas": replicas}}


def repair(deployment: Object, live: ObservedDeployment) -> Object:
    """The Deployment to apply over the live one, with its replicas.

    The API server refuses it (HTTP 409) if the live one was changed since, such as scaled.
    """
    stated = with_replicas(deployment, live.replicas)
    return stated | {"metadata": stated["metadata"] | {"resourceVersion": live.resource_version}}


def preflight(
    spec: ServiceSpec,
    revision: str,
    pods: PinnedPods,
    variant: str = "",
    label: str = "",
    *,
    is_first: bool = True,
) -> Object:
    """The preflight pod: checks the model once, and reports the result in its termination message.

    spec: as placed on the variant. label: the variant if the check is about it alone. is_first: whether it
    is the first of the revision's preflights, whose name does not have the variant.
    """
    pod = pods.preflight
    if variant:
        pod = _run_once(place(pod, spec, program_overrides(spec)))
    checked = {"spec": pod, "acceleratorMemory": spec.accelerator_memory_bytes}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": preflight_name(spec, revision, "" if is_first else variant),
            "namespace": spec.namespace,
            "labels": labels(spec, revision, PREFLIGHT) | ({VARIANT_LABEL: label} if label else {}),
            "annotations": {TEMPLATE_HASH: _hash(checked)},
            "ownerReferences": [owner(spec)],
        },
        "spec": pod,
    }


def preflight_with_engine_resources(preflight: Object, engine: Object) -> Object:
    """The preflight with the CPU and memory of an engine, which its namespace has to allow anyway.

    For namespaces whose limit range or quota does not allow a smaller pod. engine: its Deployment.
    """
    pod = deepcopy(preflight)
    taken = _engine_container(engine["spec"]["template"]["spec"]).get("resources", {})
    _engine_container(pod["spec"])["resources"] = engine_share(taken)
    return pod


def _engine_container(pod: Object) -> Object:
    return next(each for each in pod["containers"] if each["name"] == ENGINE_CONTAINER)


def _overrides(spec: ServiceSpec) -> Object:
    """The pod spec in the user's template; on a variant, with its node selection."""
    found: Object = spec.template.get("spec", {})
    return found


def _run_once(pod: Object) -> Object:
    """The pod spec with restartPolicy Never, which overrides the user's template."""
    return pod | {"restartPolicy": "Never"}


def program_overrides(spec: ServiceSpec) -> Object:
    """The part of the user's pod spec that pods of Penstock's other programs have too, such as the preflight.

    A claim would take an accelerator, and resources of the pod those of an engine.
    """
    left_out = ("containers", "resourceClaims", "resources")
    kept = {key: value for key, value in _overrides(spec).items() if key not in left_out}
    if fields := _program_fields(spec):
        kept["containers"] = [fields]
    return kept


def _program_fields(spec: ServiceSpec) -> Object:
    """The fields in the user's template that all programs of Penstock's engine in a pod have; empty: none.

    Arguments may name mounted files and variables. Those for other programs could harm ours.
    """
    containers: Any = _overrides(spec).get("containers")
    if runtime_of(spec.settings).name != PENSTOCK or not is_keyed(containers, "name"):
        return {}
    engines = [each for each in containers if each.get("name") == ENGINE_CONTAINER]
    return {
        key: value for each in engines for key, value in each.items() if key in PREFLIGHT_FIELDS
    }


def _hash(template: Object) -> str:
    """Hash of a pod template, 16 hexadecimal digits, to detect outdated Deployments.

    Comparing fields would not suffice: a field that was removed from the template looks like a default of
    the API server in the live object.
    """
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:16]
