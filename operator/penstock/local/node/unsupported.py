"""Finds pod features that this node does not support. No I/O."""

from collections.abc import Iterator

from penstock.core.spec.service import Object

REASON = "NotSupported"
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
ACTIONS = ("exec", "httpGet", "tcpSocket")
VOLUMES = (
    "configMap", "downwardAPI", "emptyDir", "hostPath", "persistentVolumeClaim", "projected",
    "secret",
)  # fmt: skip
PROJECTIONS = ("configMap", "downwardAPI", "secret", "serviceAccountToken")
# Fields that need a container runtime or the kubelet.
POD_FIELDS = ("hostAliases", "readinessGates", "resourceClaims")
CONTAINER_FIELDS = ("restartPolicy", "restartPolicyRules", "stdin", "tty", "volumeDevices")


def unsupported(pod: Object) -> list[str]:
    """Return the paths of unsupported fields that a pod sets; empty if the pod can run."""
    return list(_fields(pod["spec"]))


def _fields(spec: Object) -> Iterator[str]:
    yield from (f"spec.{name}" for name in POD_FIELDS if spec.get(name))
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind, []):
            path = f"spec.{kind}[{container['name']}]"
            yield from (f"{path}.{name}" for name in CONTAINER_FIELDS if container.get(name))
            for probe in PROBES:
                if probe in container and not any(each in container[probe] for each in ACTIONS):
                    yield f"{path}.{probe}.grpc"
    for volume in spec.get("volumes", []):
        path = f"spec.volumes[{volume['name']}]"
        kinds = [kind for kind in volume if kind != "name"]
        yield from (f"{path}.{kind}" for kind in kinds if kind not in VOLUMES)
        for source in volume.get("projected", {}).get("sources", []):
            yield from (f"{path}.projected.{kind}" for kind in source if kind not in PROJECTIONS)
