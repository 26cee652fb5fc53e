"""Overrides of `spec.template.spec`: refused ones, which would give pods rights, and allowed ones."""

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

# Tuples of the rights that the pod would get, the override, and the path at the start of the refusal.
REFUSED: list[tuple[str, Override, str]] = [
    ("a privileged engine", context(privileged=True), f"{ENGINE}.securityContext.privileged"),
    (
        "a privileged sidecar",
        side(securityContext={"privileged": True}),
        f"{SPEC}.containers[side].securityContext.privileged",
    ),
    (
        "privilege escalation",
        context(allowPrivilegeEscalation=True),
        f"{ENGINE}.securityContext.allowPrivilegeEscalation",
    ),
    (
        "privilege escalation by null",
        context(allowPrivilegeEscalation=None),
        f"{ENGINE}.securityContext.allowPrivilegeEscalation",
    ),
    (
        "capabilities",
        context(capabilities={"add": ["SYS_ADMIN"]}),
        f"{ENGINE}.securityContext.capabilities.add",
    ),
    (
        "capabilities that are not dropped",
        context(capabilities={"drop": ["KILL"]}),
        f"{ENGINE}.securityContext.capabilities.drop",
    ),
    (
        "capabilities by null",
        context(capabilities=None),
        f"{ENGINE}.securityContext.capabilities",
    ),
    (
        "security context of the container removed",
        engine(securityContext=None),
        f"{ENGINE}.securityContext",
    ),
    ("security context of the pod removed", {"securityContext": None}, f"{SPEC}.securityContext"),
    ("a context that is a list", {"securityContext": []}, f"{SPEC}.securityContext"),
    (
        "security context replaced",
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
        "all system calls by null",
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
        "a Windows host process",
        {"securityContext": {"windowsOptions": {"hostProcess": True}}},
        f"{SPEC}.securityContext.windowsOptions",
    ),
    (
        "kernel parameters",
        {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
        f"{SPEC}.securityContext.sysctls",
    ),
    ("host network", {"hostNetwork": True}, f"{SPEC}.hostNetwork"),
    ("host PID namespace", {"hostPID": True}, f"{SPEC}.hostPID"),
    ("host IPC namespace", {"hostIPC": True}, f"{SPEC}.hostIPC"),
    ("host user namespace", {"hostUsers": True}, f"{SPEC}.hostUsers"),
    ("shared process namespace", {"shareProcessNamespace": True}, f"{SPEC}.shareProcessNamespace"),
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
        "a token by null",
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
        "mount propagation",
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
        "a probe of another host",
        engine(readinessProbe={"httpGet": {"host": "169.254.169.254"}}),
        f"{ENGINE}.readinessProbe.httpGet.host",
    ),
    (
        "a preStop hook to another host",
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
    ("ports removed", engine(ports=None), f"{ENGINE}.ports"),
    (
        "priority of the system",
        {"priorityClassName": "system-node-critical"},
        f"{SPEC}.priorityClassName",
    ),
    ("a deadline", {"activeDeadlineSeconds": 1}, f"{SPEC}.activeDeadlineSeconds"),
    ("no restarts", {"restartPolicy": "Never"}, f"{SPEC}.restartPolicy"),
    ("pod replaced", {"$patch": "replace", "containers": [CONTAINER]}, f"{SPEC}.$patch"),
    (
        "engine container replaced",
        {
            "containers": [
                {"name": "engine", "$patch": "delete"},
                {"name": "engine", "image": "busybox"},
            ]
        },
        f"{ENGINE}.$patch",
    ),
    (
        "containers replaced",
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
ALLOWED: dict[str, Override] = {
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
    "the engine's port repeated": engine(ports=[{"containerPort": 8000, "name": "http"}]),
    "host aliases": {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}], "dnsPolicy": "Default"},
    "grace period": {"terminationGracePeriodSeconds": 77},
}  # fmt: skip
