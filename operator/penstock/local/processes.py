"""Starting processes that outlive a command, and ending all that belong to a cluster.

Every process of a cluster carries the cluster's id in its environment, and so do its children. What
carries the id belongs to the cluster, whatever crashed before: no pid file can be stale.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import psutil

from penstock.clients.clock import sleep

CLUSTER_ID = "PENSTOCK_LOCAL_CLUSTER_ID"
COMPONENT = "PENSTOCK_LOCAL_COMPONENT"
CONTAINER = "PENSTOCK_LOCAL_CONTAINER"  # namespace/pod/container
POD_UID = "PENSTOCK_LOCAL_POD_UID"

# Bound on the attempts to kill processes that keep starting new ones.
MAX_KILL_ROUNDS, KILL_PAUSE_S = 100, 0.05

POD = "pod"  # the component that every container belongs to


def spawn(
    command: list[str], *, cluster_id: str, component: str, log: Path, env: Mapping[str, str] = {}
) -> psutil.Process:
    """Start a component in a session of its own, its output appended to `log`."""
    environment = os.environ | env | {CLUSTER_ID: cluster_id, COMPONENT: component}
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        command[0],
        command,
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    return psutil.Process(pid)


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs; a child that has ended and was not waited for does not."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def find(cluster_id: str, component: str | None = None) -> list[psutil.Process]:
    """Running processes of a cluster, or of one component."""
    wanted = {CLUSTER_ID: cluster_id} | ({COMPONENT: component} if component else {})
    return _marked(wanted)


def find_in_pod(pod_uid: str, container: str | None = None) -> list[psutil.Process]:
    """Running processes of a pod, or of one container (namespace/pod/container) of it.

    Includes those that left their session, as long as they keep their environment.
    """
    return _marked({POD_UID: pod_uid} | ({CONTAINER: container} if container else {}))


def _marked(wanted: Mapping[str, str]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if any(environment.get(name) != value for name, value in wanted.items()):
                continue
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:  # gone, or not ours to look into
            continue
    return found


def variable(process: psutil.Process, name: str) -> str | None:
    """A variable of a process's environment; None also when the process is gone."""
    try:
        value: str | None = process.environ().get(name)
        return value
    except psutil.Error:
        return None


def end(processes: Iterable[psutil.Process], *, grace_s: float) -> None:
    """SIGTERM, then SIGKILL for what is left after `grace_s`. Returns when all are gone."""
    waiting = list(processes)
    for process in waiting:
        _signal(process, kill=False)
    _, left = psutil.wait_procs(waiting, timeout=grace_s)
    for process in left:
        _signal(process, kill=True)
    psutil.wait_procs(left, timeout=10)


def end_all(found: Callable[[], list[psutil.Process]], *, grace_s: float) -> None:
    """As `end`, of what `found` finds, and then of what these processes started meanwhile."""
    end(found(), grace_s=grace_s)
    kill(found)


def kill(found: Callable[[], list[psutil.Process]]) -> None:
    """Kill what `found` returns until it returns nothing, as processes may start others meanwhile."""
    for _ in range(MAX_KILL_ROUNDS):
        left = found()
        if not left:
            return
        for process in left:
            _signal(process, kill=True)
        sleep(KILL_PAUSE_S)  # no wait for them: the event loop reaps its own children


def _signal(process: psutil.Process, *, kill: bool) -> None:
    try:
        if kill:
            process.kill()
        else:
            process.resume()  # a frozen process would not hear SIGTERM
            process.terminate()
    except psutil.NoSuchProcess:
        pass
