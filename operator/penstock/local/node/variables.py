"""Collects the environment variables of a pod's containers from this machine, the cluster and the pod."""

import base64
import json
import os
from collections.abc import Mapping

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import CONFIG_MAPS, SECRETS, Resource
from penstock.core.spec.service import Object
from penstock.errors import NotFound
from penstock.local import processes
from penstock.local.node.container import search_path
from penstock.local.node.environment import environment, references
from penstock.local.record import API_PORT, Cluster

# Variables of this process that are passed on, as programs need them.
INHERITED = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PENSTOCK_CACHE_DIR", "TZ", "USER")


class Variables:
    """Environment variables of one pod's containers."""

    def __init__(self, kube: Kube, cluster: Cluster, pod: Object, pod_ip: str) -> None:
        self._kube = kube
        self._cluster = cluster
        self._pod = pod
        self._pod_ip = pod_ip

    def machine(self) -> dict[str, str]:
        """Variables that a container runtime would set; the pod may override them."""
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        return inherited | {"PATH": search_path(), "HOSTNAME": self._pod["metadata"]["name"]}

    def marks(self, spec: Object, mounts: Mapping[str, str]) -> dict[str, str]:
        """Variables that the pod cannot override: they identify the container's processes and its mounts.

        mounts: path in the container -> path of this machine. Programs that get such paths in requests map
        them, as they have no mounts of their own.
        """
        metadata = self._pod["metadata"]
        return {
            processes.CLUSTER_ID: self._cluster.cluster_id,
            processes.COMPONENT: processes.POD,
            processes.CONTAINER: f"{metadata['namespace']}/{metadata['name']}/{spec['name']}",
            processes.POD_UID: metadata["uid"],
            processes.MOUNTS: json.dumps(dict(mounts)),
        }

    async def from_spec(self, spec: Object) -> dict[str, str]:
        """Variables that the pod sets for a container. Raises ConfigError for a missing key, KubeError."""
        config_maps, secrets = references(self._pod)
        maps = {name: await self._data(CONFIG_MAPS, name) for name in config_maps}
        secret = {name: await self._data(SECRETS, name) for name in secrets}
        status = self._pod.get("status", {}) | {
            "podIP": self._pod_ip,
            "hostIP": self._cluster.address,
        }
        service = {
            "KUBERNETES_SERVICE_HOST": self._cluster.address,
            "KUBERNETES_SERVICE_PORT": str(API_PORT),
        }
        return environment(
            spec,
            self._pod | {"status": status},
            service,
            {n: v for n, v in maps.items() if v is not None},
            {n: v for n, v in secret.items() if v is not None},
        )

    async def _data(self, resource: Resource, name: str) -> dict[str, str] | None:
        try:
            found = await self._kube.get(resource, self._pod["metadata"]["namespace"], name)
        except NotFound:
            return None
        data: dict[str, str] = found.get("data", {})
        if resource is SECRETS:
            # surrogateescape passes bytes that are not UTF-8 to the process unchanged.
            data = {
                k: base64.b64decode(v).decode(errors="surrogateescape") for k, v in data.items()
            }
        return data
