"""Faults that tests and the demo put into a running cluster."""

import signal

import psutil

from penstock.local import processes
from penstock.local.record import Cluster


class NoSuchContainer(Exception):
    """No process of that container is running."""


def container_process(
    cluster: Cluster, pod: str, container: str, *, namespace: str = "default"
) -> psutil.Process:
    """The main process of a running container. Raises NoSuchContainer."""
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
    """SIGKILL: the process is gone without a word."""
    container_process(cluster, pod, container, namespace=namespace).send_signal(signal.SIGKILL)


def freeze(cluster: Cluster, pod: str, container: str, *, namespace: str = "default") -> None:
    """SIGSTOP: connections stay open and nothing answers."""
    container_process(cluster, pod, container, namespace=namespace).suspend()


def thaw(cluster: Cluster, pod: str, container: str, *, namespace: str = "default") -> None:
    container_process(cluster, pod, container, namespace=namespace).resume()


def set_start_delay_s(cluster: Cluster, seconds: float) -> None:
    """Every container started from now on takes so much longer; 0 ends it."""
    (cluster.folder / "start-delay-s").write_text(str(seconds))


def start_delay_s(cluster: Cluster) -> float:
    try:
        return float((cluster.folder / "start-delay-s").read_text())
    except FileNotFoundError:
        return 0.0


def set_heartbeat(cluster: Cluster, *, beating: bool) -> None:
    """Stop or resume the node's heartbeat."""
    silence = cluster.folder / "no-heartbeat"
    if beating:
        silence.unlink(missing_ok=True)
    else:
        silence.touch()


def heart_beats(cluster: Cluster) -> bool:
    return not (cluster.folder / "no-heartbeat").exists()
