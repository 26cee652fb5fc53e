"""The DaemonSet of the cache of models on each node."""

from copy import deepcopy
from typing import Final

from penstock.chart.component.deployment import ENGINE_IMAGE
from penstock.chart.names import NODE_CACHE, labels, selector
from penstock.chart.node_cache.values import SOURCES_MISSING
from penstock.chart.tree import (
    ITEM,
    BytesOf,
    ForEach,
    If,
    Merge,
    ReleaseNamespace,
    Text,
    Tree,
    Value,
    VariableName,
    VariableValue,
    optional,
)
from penstock.core.manifests import restricted
from penstock.core.manifests.model_fetch import COMMAND
from penstock.core.runtimes.paths import (
    MODEL_CACHE_MOUNT,
    MODEL_SECRET_MOUNT,
    NODE_CACHE_SOCKET,
)
from penstock.core.spec.service import MODEL_CACHE_VOLUME, MODEL_SECRET_VOLUME, Object

# Fields beyond those of restricted.CONTAINER: the folder belongs to root, who can write to it without any
# capability.
POD_CONTEXT: Final[Object] = {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}}


def node_cache() -> list[Tree]:
    """The DaemonSet, if the cache is enabled."""
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": NODE_CACHE,
            "namespace": ReleaseNamespace(),
            "labels": labels(NODE_CACHE),
        },
        "spec": {
            "selector": {"matchLabels": selector(NODE_CACHE)},
            # A surge would start a second writer of the folder.
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
            },
            "template": {
                "metadata": {
                    "labels": Merge(labels(NODE_CACHE), "nodeCache.podLabels"),
                    "annotations": optional("nodeCache.podAnnotations"),
                },
                "spec": _pod(),
            },
        },
    }
    return [If("nodeCache.enabled", daemon_set)]


def _pod() -> Object:
    folder = {"path": Value("nodeCache.path"), "type": "DirectoryOrCreate"}
    secret = {"secretName": Value("nodeCache.credentialsSecret"), "defaultMode": 0o400}
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "imagePullSecrets": optional("imagePullSecrets"),
        "nodeSelector": optional("nodeCache.nodeSelector"),
        "tolerations": optional("nodeCache.tolerations"),
        "affinity": optional("nodeCache.affinity"),
        "priorityClassName": optional("nodeCache.priorityClassName"),
        "securityContext": deepcopy(POD_CONTEXT),
        "containers": [_container()],
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            {"name": MODEL_CACHE_VOLUME, "hostPath": folder},
            If("nodeCache.credentialsSecret", {"name": MODEL_SECRET_VOLUME, "secret": secret}),
        ],
    }


def _container() -> Object:
    secret = {"name": MODEL_SECRET_VOLUME, "mountPath": MODEL_SECRET_MOUNT, "readOnly": True}
    variable = {"name": VariableName(ITEM), "value": VariableValue(ITEM)}
    return {
        "name": "node-cache",
        "image": ENGINE_IMAGE,
        "imagePullPolicy": Value("image.pullPolicy"),
        "command": COMMAND,
        "args": [
            "node-cache",
            f"--cache={MODEL_CACHE_MOUNT}",
            If(
                "nodeCache.sizeLimit",
                Text.of("--cache-limit-bytes=", BytesOf("nodeCache.sizeLimit")),
            ),
            ForEach("nodeCache.allowedSources", Text.of("--allow=", Value(ITEM)), SOURCES_MISSING),
            If("nodeCache.credentialsSecret", f"--credentials={MODEL_SECRET_MOUNT}"),
            ForEach("nodeCache.extraArgs", Value(ITEM)),
        ],
        "env": If("operator.sourceVariables", [ForEach("operator.sourceVariables", variable)]),
        "resources": Value("nodeCache.resources"),
        "securityContext": deepcopy(restricted.CONTAINER),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own
            {"name": MODEL_CACHE_VOLUME, "mountPath": MODEL_CACHE_MOUNT},
            If("nodeCache.credentialsSecret", secret),
        ],
        "readinessProbe": {
            "exec": {"command": ["test", "-S", NODE_CACHE_SOCKET]},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
            "failureThreshold": 2,
        },
    }
