"""Injects faults into a running cluster, for tests and the demo."""

import json
import signal
from pathlib import Path

import psutil

from penstock.core.spec.service import Object
from penstock.local import processes, startup
from penstock.local.record import Cluster


class NoSuchContainer(Exception):
    """The container has no running process."""


def container_process(
    cluster: Cluster, pod: str, container: str, *, namespace: str = "default"
) -> psutil.Process:
    """Return the main process of a running container. Raises NoSuchContainer."""
    wanted = f"{namespace}/{pod}/{container}"
    if cluster.node == "kubelet":
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        found = _in_control_group(container_id(_read_pod(cluster, path), container))
    else:
        found = [
            process
            for process in processes.find(cluster.cluster_id, processes.POD)
            if processes.variable(process, processes.CONTAINER) == wanted
        ]
    if not found:
        raise NoSuchContainer(wanted)
    return min(found, key=lambda process: (process.create_time(), process.pid))


def kill(cluster: Cluster, pod: str, container: str, *, namespace: str = "default") -> None:
    """Kill a container with SIGKILL, so that it cannot shut down."""
    container_process(cluster, pod, container, namespace=namespace).send_signal(signal.SIGKILL)


def freeze(cluster: Cluster, pod: str, container: str, *, namespace: str = "default") -> None:
    """Suspend a container with SIGSTOP: its connections stay open, but it does not answer."""
    container_process(cluster, pod, container, namespace=namespace).suspend()


def container_id(pod: Object, container: str) -> str:
    """Return the runtime's id of a container, as a kubelet reports it; empty if it has not started."""
    statuses = pod.get("status", {}).get("containerStatuses", [])
    ids = {each["name"]: each.get("containerID", "") for each in statuses}
    return str(ids.get(container, "")).rpartition("/")[2]


def _read_pod(cluster: Cluster, path: str) -> Object:
    body = startup.read(cluster, path)
    pod: Object = json.loads(body) if body else {}
    return pod


def _in_control_group(name: str) -> list[psutil.Process]:
    """List the running processes whose control group has this name, that of their container."""
    return [process for process in psutil.process_iter() if name and _is_in(process.pid, name)]


def _is_in(pid: int, name: str) -> bool:
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:  # it has ended
        return False
    return any(name in group.split("/") for group in groups)
