"""Limits on `spec.template`, by which the operator and the chart's admission policy check it.

Without them, a user who may create an InferenceService could create any pod. Fields that are not listed are
refused. The pods stay within the restricted Pod Security Standard, and have no service account's token.
"""

from collections.abc import Collection
from typing import Any

from penstock.core.spec.limits import AnyValue, Check, Fields, Items, one_of, violations
from penstock.core.spec.service import (
    ADAPTER_VOLUMES,
    DRAFT_MODEL_VOLUME,
    ENGINE_CONTAINER,
    ENGINE_PORT,
    ENGINE_PORT_NAME,
    MODEL_CACHE_VOLUME,
    MODEL_VOLUME,
    Object,
)

MODEL_VOLUMES = (MODEL_VOLUME, DRAFT_MODEL_VOLUME, MODEL_CACHE_VOLUME, *ADAPTER_VOLUMES)
APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"

ANY = AnyValue()
FALSE, TRUE = one_of(False), one_of(True)
TEXT = Check(lambda value: isinstance(value, str), "type(VALUE) == string", "must be a string")
NUMBER = Check(lambda value: type(value) is int, "type(VALUE) == int", "must be a whole number")
NOT_ROOT = Check(
    lambda value: type(value) is int and value > 0,
    "type(VALUE) == int && VALUE > 0",
    "must be the ID of a user other than root: change or remove it",
)
PRIORITY = Check(
    lambda value: isinstance(value, str) and not value.startswith("system-"),
    "type(VALUE) == string && !VALUE.startsWith('system-')",
    "must not begin with system-: change or remove it",
)
ANNOTATIONS = Check(
    lambda keys: not any(key.startswith(APPARMOR_ANNOTATION) for key in keys),
    f"VALUE.all(key, !key.startsWith('{APPARMOR_ANNOTATION}'))",
    "must not choose AppArmor profiles: set securityContext.appArmorProfile in spec.template.spec",
)


def _drops_all(value: Any) -> bool:
    return isinstance(value, list) and "ALL" in value


DROPS_ALL = Check(
    _drops_all,
    "type(VALUE) == list && VALUE.exists(each, each == 'ALL')",
    "must contain ALL: add it, or remove the field",
)


def _keeps_port(container: Object) -> bool:
    """Whether the engine's port keeps its number, name and protocol, and no other container has either."""
    is_engine = container["name"] == ENGINE_CONTAINER
    for port in container.get("ports", []):
        has_number = port["containerPort"] == ENGINE_PORT
        has_name = port.get("name") == ENGINE_PORT_NAME
        if has_number and is_engine:
            if not (has_name or "name" not in port) or port.get("protocol", "TCP") != "TCP":
                return False
        elif has_number or has_name:
            return False
    return True


_NAMED = f"('name' in port && port.name == '{ENGINE_PORT_NAME}')"
KEEPS_PORT = Check(
    _keeps_port,
    "!('ports' in VALUE) || VALUE.ports.all(port, "
    f"VALUE.name == '{ENGINE_CONTAINER}' && port.containerPort == {ENGINE_PORT} "
    f"? (!('name' in port) || {_NAMED}) && (!('protocol' in port) || port.protocol == 'TCP') "
    f": port.containerPort != {ENGINE_PORT} && !{_NAMED})",
    f"must leave port {ENGINE_PORT} and the port name {ENGINE_PORT_NAME} to the engine: use others",
)


def _mounts_read_only(mount: Object) -> bool:
    name = mount.get("name")
    is_other = isinstance(name, str) and name not in MODEL_VOLUMES
    return is_other or mount.get("readOnly") is True


# A mount without a name is merged into the one at the same path, which may be that of a model.
MODELS_READ_ONLY = Check(
    _mounts_read_only,
    f"('name' in VALUE && type(VALUE.name) == string && !(VALUE.name in {list(MODEL_VOLUMES)})) || "
    "('readOnly' in VALUE && VALUE.readOnly == true)",
    "must set readOnly to true: a mount of a model or of adapters may only be read",
)

PROFILE = Fields(
    {"type": one_of("RuntimeDefault", "Localhost"), "localhostProfile": ANY}, required=("type",)
)
# Fields of both security contexts, of the pod and of a container.
USER: dict[str, Any] = {
    "runAsNonRoot": TRUE,
    "runAsUser": NOT_ROOT,
    "runAsGroup": ANY,
    "seccompProfile": PROFILE,
    "appArmorProfile": PROFILE,
}
POD_CONTEXT = Fields(
    USER
    | dict.fromkeys(
        ("fsGroup", "fsGroupChangePolicy", "supplementalGroups", "supplementalGroupsPolicy"), ANY
    )
)
CONTAINER_CONTEXT = Fields(
    USER
    | {
        "privileged": FALSE,
        "allowPrivilegeEscalation": FALSE,
        "readOnlyRootFilesystem": ANY,
        "capabilities": Fields({"drop": DROPS_ALL}),
    }
)

# `host` is left out: with it, the node would send requests to any address.
HTTP_GET = Fields(dict.fromkeys(("path", "port", "scheme", "httpHeaders"), ANY), is_removable=True)
TCP_SOCKET = Fields({"port": ANY}, is_removable=True)
PROBE = Fields(
    dict.fromkeys(
        (
            "exec", "grpc", "initialDelaySeconds", "timeoutSeconds", "periodSeconds",
            "successThreshold", "failureThreshold", "terminationGracePeriodSeconds",
        ),
        ANY,
    )
    | {"httpGet": HTTP_GET, "tcpSocket": TCP_SOCKET},
    is_removable=True,
)  # fmt: skip
HOOK = Fields(
    {"exec": ANY, "sleep": ANY, "httpGet": HTTP_GET, "tcpSocket": TCP_SOCKET}, is_removable=True
)

CONTAINER = Fields(
    {"name": TEXT}
    | dict.fromkeys(
        (
            "image", "imagePullPolicy", "command", "args", "workingDir", "env", "envFrom", "resources",
            "resizePolicy", "terminationMessagePath", "terminationMessagePolicy",
        ),
        ANY,
    )
    | {
        "ports": Items(
            Fields(
                {"name": ANY, "containerPort": NUMBER, "protocol": ANY}, required=("containerPort",)
            )
        ),
        "volumeMounts": Items(
            Fields(
                dict.fromkeys(
                    ("name", "mountPath", "readOnly", "recursiveReadOnly", "subPath", "subPathExpr"),
                    ANY,
                ),
                checks=(MODELS_READ_ONLY,),
            ),
            is_removable=True,
        ),
        "startupProbe": PROBE,
        "readinessProbe": PROBE,
        "livenessProbe": PROBE,
        "lifecycle": Fields(
            {"postStart": HOOK, "preStop": HOOK, "stopSignal": ANY}, is_removable=True
        ),
        "securityContext": CONTAINER_CONTEXT,
    },
    required=("name",),
    checks=(KEEPS_PORT,),
)  # fmt: skip

SOURCES = ("configMap", "secret", "downwardAPI")
VOLUME = Fields(
    {"name": TEXT}
    | dict.fromkeys((*SOURCES, "emptyDir", "persistentVolumeClaim", "ephemeral"), ANY)
    | {
        # serviceAccountToken and podCertificate are left out: they are identities.
        "projected": Fields(
            {
                "defaultMode": ANY,
                "sources": Items(
                    Fields(dict.fromkeys((*SOURCES, "clusterTrustBundle"), ANY)), is_removable=True
                ),
            },
            is_removable=True,
        )
    },
    required=("name",),
)

POD = Fields(
    dict.fromkeys(
        (
            "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "schedulerName",
            "runtimeClassName", "preemptionPolicy", "imagePullSecrets", "resources", "resourceClaims",
            "readinessGates", "schedulingGates", "dnsPolicy", "dnsConfig", "hostAliases",
            "enableServiceLinks", "terminationGracePeriodSeconds",
            "serviceAccountName",  # checked against the operator's list by `template_violation`
        ),
        ANY,
    )
    | {
        "priorityClassName": PRIORITY,
        "hostUsers": FALSE,
        "automountServiceAccountToken": FALSE,
        "securityContext": POD_CONTEXT,
        "containers": Items(CONTAINER, "name"),
        "volumes": Items(VOLUME, "name", is_removable=True),
    }
)  # fmt: skip

POD_PATH = "spec.template.spec"
ANNOTATIONS_PATH = "spec.template.metadata.annotations"
ACCOUNT = "serviceAccountName"
ACCOUNT_REFUSED = (
    f"{POD_PATH}.{ACCOUNT} names a service account that no --allowed-service-account of the operator (chart "
    "value operator.allowedServiceAccounts) allows here: remove it, or ask an administrator to allow it"
)


def template_violation(template: Object, accounts: Collection[str] = ()) -> str | None:
    """A sentence about the first part of a pod template that is not allowed; None if all parts are.

    accounts: service accounts that pods in the namespace may have.
    """
    annotations = template.get("metadata", {}).get("annotations", {})
    found = (
        *violations(template.get("spec", {}), POD, POD_PATH),
        *violations(annotations, ANNOTATIONS, ANNOTATIONS_PATH),
    )
    if found:
        return found[0]
    pod = template.get("spec", {})
    is_refused = ACCOUNT in pod and not any(pod[ACCOUNT] == each for each in accounts)
    return ACCOUNT_REFUSED if is_refused else None


def accounts_of(namespace: str, allowed: Collection[str]) -> frozenset[str]:
    """Names of the service accounts that pods in a namespace may have. allowed: NAME or NAMESPACE/NAME."""
    parts = [each.rpartition("/") for each in allowed]
    return frozenset(name for where, _, name in parts if where in ("", namespace))
