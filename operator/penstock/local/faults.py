"""Injects faults into a running cluster, for tests and the demo."""

import signal

import psutil

from penstock.local import processes
from penstock.local.record import Cluster


class NoSuchContainer(Exception):
    """The container has no running process."""


def container_process(
    cluster: Cluster, pod: str, container: str, *, namespace: str = "default"
) -> psutil.Process:
    """Return the main process of a running container. Raises NoSuchContainer."""
    wanted = f"{namespace}/{pod}/{container}"
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
