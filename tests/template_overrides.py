"""Overrides of `spec.template.spec`: those that would gain rights, and ordinary ones."""

from typing import Any

Override = dict[str, Any]

SPEC = "spec.template.spec"
ENGINE = f"{SPEC}.containers[engine]"


def engine(**fields: Any) -> Override:
    return {"containers": [{"name": "engine", **fields}]}


def context(**fields: Any) -> Override:
    return engine(securityContext=fields)


def side(**fields: Any) -> Override:
    return {"containers": [{"name": "side", "image": "busybox", **fields}]}


def volume(**source: Any) -> Override:
    return {"volumes": [{"name": "data", **source}]}


TOKEN = {"serviceAccountToken": {"path": "token"}}
CONTAINER = {"name": "more", "image": "busybox"}

# Each: the rights that it would gain, the override, and the path that the refusal begins with.
GAINS: list[tuple[str, Override, str]] = [
    ("all of the node", context(privileged=True), f"{ENGINE}.securityContext.privileged"),
    (
        "all of the node beside",
        side(securityContext={"privileged": True}),
        f"{SPEC}.containers[side].securityContext.privileged",
    ),
    (
        "escalation",
        context(allowPrivilegeEscalation=True),
        f"{ENGINE}.securityContext.allowPrivilegeEscalation",
    ),
    (
        "escalation by removal",
        context(allowPrivilegeEscalation=None),
        f"{ENGINE}.securityContext.allowPrivilegeEscalation",
    ),
    (
        "capabilities",
        context(capabilities={"add": ["SYS_ADMIN"]}),
        f"{ENGINE}.securityContext.capabilities.add",
    ),
    (
        "capabilities that are kept",
        context(capabilities={"drop": ["KILL"]}),
        f"{ENGINE}.securityContext.capabilities.drop",
    ),
    (
        "capabilities by removal",
        context(capabilities=None),
        f"{ENGINE}.securityContext.capabilities",
    ),
    ("no context of the container", engine(securityContext=None), f"{ENGINE}.securityContext"),
    ("no context of the pod", {"securityContext": None}, f"{SPEC}.securityContext"),
    ("a context that is a list", {"securityContext": []}, f"{SPEC}.securityContext"),
    (
        "a context in place of ours",
        {"securityContext": {"$patch": "replace"}},
        f"{SPEC}.securityContext.$patch",
    ),
    ("root", {"securityContext": {"runAsUser": 0}}, f"{SPEC}.securityContext.runAsUser"),
    ("root in a container", context(runAsUser=0), f"{ENGINE}.securityContext.runAsUser"),
    ("root as text", context(runAsUser="0"), f"{ENGINE}.securityContext.runAsUser"),
    ("root by the image", context(runAsNonRoot=False), f"{ENGINE}.securityContext.runAsNonRoot"),
    (
        "all system calls",
        context(seccompProfile={"type": "Unconfined"}),
        f"{ENGINE}.securityContext.seccompProfile.type",
    ),
    (
        "all system calls by removal",
        {"securityContext": {"seccompProfile": None}},
        f"{SPEC}.securityContext.seccompProfile",
    ),
    (
        "no AppArmor",
        context(appArmorProfile={"type": "Unconfined"}),
        f"{ENGINE}.securityContext.appArmorProfile.type",
    ),
    ("/proc", context(procMount="Unmasked"), f"{ENGINE}.securityContext.procMount"),
    (
        "an SELinux type",
        {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}},
        f"{SPEC}.securityContext.seLinuxOptions",
    ),
    (
        "a host process",
        {"securityContext": {"windowsOptions": {"hostProcess": True}}},
        f"{SPEC}.securityContext.windowsOptions",
    ),
    (
        "settings of the kernel",
        {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
        f"{SPEC}.securityContext.sysctls",
    ),
    ("the node's network", {"hostNetwork": True}, f"{SPEC}.hostNetwork"),
    ("the node's processes", {"hostPID": True}, f"{SPEC}.hostPID"),
    ("the node's memory", {"hostIPC": True}, f"{SPEC}.hostIPC"),
    ("the node's users", {"hostUsers": True}, f"{SPEC}.hostUsers"),
    ("the processes of others", {"shareProcessNamespace": True}, f"{SPEC}.shareProcessNamespace"),
    (
        "a port of the node",
        engine(ports=[{"containerPort": 9000, "hostPort": 9000}]),
        f"{ENGINE}.ports[].hostPort",
    ),
    ("a chosen node", {"nodeName": "node-1"}, f"{SPEC}.nodeName"),
    ("another identity", {"serviceAccountName": "admin"}, f"{SPEC}.serviceAccountName"),
    ("another identity, by its old name", {"serviceAccount": "admin"}, f"{SPEC}.serviceAccount"),
    ("a token", {"automountServiceAccountToken": True}, f"{SPEC}.automountServiceAccountToken"),
    (
        "a token by removal",
        {"automountServiceAccountToken": None},
        f"{SPEC}.automountServiceAccountToken",
    ),
    (
        "a projected token",
        volume(projected={"sources": [TOKEN]}),
        f"{SPEC}.volumes[data].projected.sources[].serviceAccountToken",
    ),
    ("init containers", {"initContainers": [CONTAINER]}, f"{SPEC}.initContainers"),
    ("ephemeral containers", {"ephemeralContainers": [CONTAINER]}, f"{SPEC}.ephemeralContainers"),
    ("files of the node", volume(hostPath={"path": "/"}), f"{SPEC}.volumes[data].hostPath"),
    (
        "other files of the node",
        {"volumes": [{"name": "model", "hostPath": {"path": "/etc"}}]},
        f"{SPEC}.volumes[model].hostPath",
    ),
    ("a file server", volume(nfs={"server": "nfs", "path": "/"}), f"{SPEC}.volumes[data].nfs"),
    ("an inline driver", volume(csi={"driver": "nfs.csi.k8s.io"}), f"{SPEC}.volumes[data].csi"),
    (
        "a device",
        engine(volumeDevices=[{"name": "data", "devicePath": "/dev/sda"}]),
        f"{ENGINE}.volumeDevices",
    ),
    (
        "mounts of the node",
        engine(
            volumeMounts=[{"name": "tmp", "mountPath": "/x", "mountPropagation": "Bidirectional"}]
        ),
        f"{ENGINE}.volumeMounts[].mountPropagation",
    ),
    (
        "writing into the model",
        engine(volumeMounts=[{"mountPath": "/models", "readOnly": False}]),
        f"{ENGINE}.volumeMounts[]",
    ),
    (
        "requests of the node",
        engine(readinessProbe={"httpGet": {"host": "169.254.169.254"}}),
        f"{ENGINE}.readinessProbe.httpGet.host",
    ),
    (
        "requests of the node at the end",
        engine(lifecycle={"preStop": {"tcpSocket": {"host": "10.0.0.1"}}}),
        f"{ENGINE}.lifecycle.preStop.tcpSocket.host",
    ),
    ("the engine's port", side(ports=[{"containerPort": 8000}]), f"{SPEC}.containers[side]"),
    (
        "the engine's port name",
        side(ports=[{"containerPort": 9000, "name": "http"}]),
        f"{SPEC}.containers[side]",
    ),
    ("another name of the port", engine(ports=[{"containerPort": 8000, "name": "grpc"}]), ENGINE),
    ("no ports", engine(ports=None), f"{ENGINE}.ports"),
    (
        "priority of the system",
        {"priorityClassName": "system-node-critical"},
        f"{SPEC}.priorityClassName",
    ),
    ("an end by time", {"activeDeadlineSeconds": 1}, f"{SPEC}.activeDeadlineSeconds"),
    ("no restarts", {"restartPolicy": "Never"}, f"{SPEC}.restartPolicy"),
    ("a pod in place of ours", {"$patch": "replace", "containers": [CONTAINER]}, f"{SPEC}.$patch"),
    (
        "an engine in place of ours",
        {
            "containers": [
                {"name": "engine", "$patch": "delete"},
                {"name": "engine", "image": "busybox"},
            ]
        },
        f"{ENGINE}.$patch",
    ),
    (
        "containers in place of ours",
        {"containers": [{"name": 1, "image": "x"}, {"name": "engine", "image": "busybox"}]},
        f"{SPEC}.containers",
    ),
    (
        "a container without a name",
        {"containers": [{"image": "busybox"}]},
        f"{SPEC}.containers[] must have the field name",
    ),
    ("containers as text", {"containers": "engine"}, f"{SPEC}.containers must be a list"),
    ("a container as text", {"containers": ["engine"]}, f"{SPEC}.containers[] must be a map"),
    (
        "volumes as a map",
        {"volumes": {"name": "data", "hostPath": {"path": "/"}}},
        f"{SPEC}.volumes must be a list",
    ),
]

TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
IN_ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
ORDINARY: dict[str, Override] = {
    "node selector": {"nodeSelector": {"pool": "gpu"}},
    "tolerations": {"tolerations": [TOLERATION]},
    "affinity": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [IN_ZONE]}]
                }
            }
        }
    },
    "topology spread": {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ]
    },
    "pull secrets": {"imagePullSecrets": [{"name": "registry"}]},
    "priority": {"priorityClassName": "serving"},
    "scheduler and runtime": {"schedulerName": "kueue", "runtimeClassName": "nvidia"},
    "environment": engine(
        env=[
            {"name": "HF_HUB_OFFLINE", "value": "1"},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}},
            {"name": "POD_IP", "$patch": "delete"},
        ],
        envFrom=[{"configMapRef": {"name": "settings", "optional": True}}],
    ),
    "a claim": {
        "volumes": [{"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}}],
        **engine(volumeMounts=[{"name": "cache", "mountPath": "/cache"}]),
    },
    "other volumes": {
        "volumes": [
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "ca", "configMap": {"name": "ca"}},
            {"name": "keys", "secret": {"secretName": "keys"}},
            {"name": "all", "projected": {"sources": [{"secret": {"name": "keys"}}]}},
        ]
    },
    "a sidecar": side(ports=[{"containerPort": 9090, "name": "metrics"}]),
    "a sidecar that reads the model": side(
        volumeMounts=[{"name": "model", "mountPath": "/m", "readOnly": True}]
    ),
    "a restricted sidecar": side(
        securityContext={
            "runAsUser": 1000,
            "runAsNonRoot": True,
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    ),
    "groups and users": {"securityContext": {"runAsUser": 1000, "fsGroup": 2000}, "hostUsers": False},
    "command and arguments": engine(command=["bash", "-c", "exec penstock-engine serve"], args=[]),
    "probes": engine(
        startupProbe={"failureThreshold": 1200},
        livenessProbe={"httpGet": None, "exec": {"command": ["true"]}},
        readinessProbe=None,
        lifecycle={"preStop": {"sleep": {"seconds": 9}}},
    ),
    "another port": engine(ports=[{"containerPort": 9090, "name": "metrics"}]),
    "the engine's port as it is": engine(ports=[{"containerPort": 8000, "name": "http"}]),
    "names of hosts": {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}], "dnsPolicy": "Default"},
    "time to end": {"terminationGracePeriodSeconds": 77},
}  # fmt: skip
