"""The Deployment of a component, with the fields that its values set, and its budget."""

from collections.abc import Mapping, Sequence
from copy import deepcopy

from penstock.chart.names import labels, selector
from penstock.chart.tree import (
    ITEM,
    ForEach,
    If,
    Merge,
    ReleaseNamespace,
    Required,
    Text,
    Tree,
    Value,
    optional,
)
from penstock.chart.version import VERSION
from penstock.core.manifests import restricted
from penstock.core.manifests.disruption import budget
from penstock.core.spec.service import Object

SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"

# Rules of checkov that do not fit, with the reason.
SCANNER_EXCEPTIONS = {
    "checkov.io/skip1": "CKV_K8S_11=a CPU limit would delay requests and renewals of the Lease",
    "checkov.io/skip2": "CKV_K8S_38=operator and gateway watch the API server with their tokens",
}

_REPOSITORY = Required(
    "image.repository",
    "image.repository must be set, such as registry.example/penstock. No image is published: "
    "`make images` builds them (docs/tutorials/install.md)",
)
_TAG = If("image.tag", Value("image.tag"), VERSION)
IMAGE = Text.of(
    _REPOSITORY, If("image.digest", Text.of("@", Value("image.digest")), Text.of(":", _TAG))
)
ENGINE_IMAGE = If(
    "operator.engineImage", Value("operator.engineImage"), Text.of(_REPOSITORY, "-engine:", _TAG)
)


def deployment(
    name: str,
    component: str,
    container: Object,
    *,
    probed: str,
    pod: Object,
    spec: Object,
    variables: Sequence[Tree] = (),
    volumes: Sequence[Tree] = (),
    mounts: Sequence[Tree] = (),
    annotations: Mapping[str, str] = SCANNER_EXCEPTIONS,
) -> Tree:
    """The Deployment of a component.

    component: the key of its values. probed: name of the port of the probes. container, pod, spec:
    fields of this component, over those that all have. variables, volumes, mounts: further ones.
    annotations: of the Deployment.
    """
    container = _container(component, probed, variables, mounts) | container
    metadata = {
        "labels": Merge(labels(name), f"{component}.podLabels"),
        "annotations": optional(f"{component}.podAnnotations"),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": name,
            "namespace": ReleaseNamespace(),
            "labels": labels(name),
            "annotations": dict(annotations),
        },
        "spec": spec
        | {
            "selector": {"matchLabels": selector(name)},
            "template": {
                "metadata": metadata,
                "spec": _pod(name, component, volumes) | pod | {"containers": [container]},
            },
        },
    }


def _pod(name: str, component: str, volumes: Sequence[Tree]) -> Object:
    return {
        "serviceAccountName": name,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "imagePullSecrets": optional("imagePullSecrets"),
        "nodeSelector": optional(f"{component}.nodeSelector"),
        "tolerations": optional(f"{component}.tolerations"),
        "affinity": optional(f"{component}.affinity"),
        "topologySpreadConstraints": If(
            f"{component}.topologySpread.topologyKeys",
            [ForEach(f"{component}.topologySpread.topologyKeys", _spread(name, component))],
        ),
        "priorityClassName": optional(f"{component}.priorityClassName"),
        "terminationGracePeriodSeconds": Value(f"{component}.terminationGracePeriodSeconds"),
        "securityContext": deepcopy(restricted.POD),
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            *volumes,
            ForEach(f"{component}.extraVolumes", Value(ITEM)),
        ],
    }


def _spread(name: str, component: str) -> Object:
    return {
        "maxSkew": 1,
        "topologyKey": Value(ITEM),
        "whenUnsatisfiable": Value(f"{component}.topologySpread.whenUnsatisfiable"),
        "labelSelector": {"matchLabels": selector(name)},
        "matchLabelKeys": ["pod-template-hash"],  # pods of an old revision do not count
    }


def _container(
    component: str, probed: str, variables: Sequence[Tree], mounts: Sequence[Tree]
) -> Object:
    def probe(path: str, failures: int) -> Object:
        return {
            "httpGet": {"path": path, "port": probed, "scheme": "HTTP"},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": failures,
        }

    def variable(name: str, field: str) -> Object:
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}

    return {
        "name": component,
        "image": IMAGE,
        "imagePullPolicy": Value("image.pullPolicy"),
        "env": [
            variable("POD_IP", "status.podIP"),
            variable("POD_NAME", "metadata.name"),
            {"name": "PENSTOCK_SERVICE_ACCOUNT_DIR", "value": SERVICE_ACCOUNT_DIR},
            *variables,
            ForEach(f"{component}.extraEnv", Value(ITEM)),
        ],
        "resources": Value(f"{component}.resources"),
        "securityContext": deepcopy(restricted.CONTAINER),
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own
            *mounts,
            ForEach(f"{component}.extraVolumeMounts", Value(ITEM)),
        ],
        "startupProbe": probe("/readyz", 60),
        "readinessProbe": probe("/readyz", 2),
        "livenessProbe": probe("/healthz", 10),
    }


def flag(prefix: str, path: str) -> If:
    """A command-line argument with the value at a path; absent if that is empty. prefix: such as --port=."""
    return If(path, Text.of(prefix, Value(path)))


def disruption_budget(name: str) -> Object:
    """The disruption budget of a component's pods."""
    made = budget(name, "", labels(name), selector(name))
    made["metadata"]["namespace"] = ReleaseNamespace()
    return made
