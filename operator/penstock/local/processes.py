"""Starts processes that outlive a command, and ends all processes of a cluster.

Every process of a cluster has the cluster's id in its environment, and its children inherit it. Processes
are found by that id, not by pid files, which would be stale after a crash.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import psutil

from penstock.clients.machine.clock import sleep

CLUSTER_ID = "PENSTOCK_LOCAL_CLUSTER_ID"
COMPONENT = "PENSTOCK_LOCAL_COMPONENT"
CONTAINER = "PENSTOCK_LOCAL_CONTAINER"  # namespace/pod/container
POD_UID = "PENSTOCK_LOCAL_POD_UID"
MOUNTS = "PENSTOCK_LOCAL_MOUNTS"  # JSON: path in the container -> path of this machine

MAX_KILL_ROUNDS, KILL_PAUSE_S = 100, 0.05  # 5 s for processes that keep starting others

POD = "pod"  # the component that every container belongs to


def spawn(
    command: list[str], *, cluster_id: str, component: str, log: Path, env: Mapping[str, str] = {}
) -> psutil.Process:
    """Start a component in its own session, with its output appended to `log`."""
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
    """Whether a process is running. A zombie, a child that nobody has waited for, is not."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def listens(process: psutil.Process, port: int) -> bool:
    """Whether a process itself, not another one, listens on a TCP port."""
    try:
        return any(
            each.status == psutil.CONN_LISTEN and each.laddr.port == port
            for each in process.net_connections("tcp")
        )
    except psutil.Error:  # it has ended
        return False


def find(cluster_id: str, component: str | None = None) -> list[psutil.Process]:
    """List the running processes of a cluster, or of one component."""
    wanted = {CLUSTER_ID: cluster_id} | ({COMPONENT: component} if component else {})
    return _with_environment(wanted)


def find_in_pod(pod_uid: str, container: str | None = None) -> list[psutil.Process]:
    """List the running processes of a pod, or of one of its containers (namespace/pod/container).

    Includes processes in other sessions, unless they have changed their environment.
    """
    return _with_environment({POD_UID: pod_uid} | ({CONTAINER: container} if container else {}))


def _with_environment(wanted: Mapping[str, str]) -> list[psutil.Process]:
    """List this user's running processes with these environment variables."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if any(environment.get(name) != value for name, value in wanted.items()):
                continue
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:  # it has ended, or belongs to another user
            continue
    return found


def variable(process: psutil.Process, name: str) -> str | None:
    """Read a variable of a process's environment; None if it is not set or the process has ended."""
    try:
        value: str | None = process.environ().get(name)
        return value
    except psutil.Error:
        return None


def end(processes: Iterable[psutil.Process], *, grace_s: float) -> None:
    """Send SIGTERM, then SIGKILL to those still running after `grace_s`. Waits until all have ended."""
    pending = list(processes)
    for process in pending:
        _signal(process, kill=False)
    _, remaining = psutil.wait_procs(pending, timeout=grace_s)
    for process in remaining:
        _signal(process, kill=True)
    psutil.wait_procs(remaining, timeout=10)


def end_all(list_running: Callable[[], list[psutil.Process]], *, grace_s: float) -> None:
    """End all processes that `list_running` returns, and those that they start meanwhile."""
    end(list_running(), grace_s=grace_s)
    kill(list_running)


def kill(list_running: Callable[[], list[psutil.Process]]) -> None:
    """Kill processes until `list_running` returns none, as they may start others meanwhile."""
    for _ in range(MAX_KILL_ROUNDS):
        running = list_running()
        if not running:
            return
        for process in running:
            _signal(process, kill=True)
        sleep(KILL_PAUSE_S)  # not wait_procs: the event loop reaps its own children


def _signal(process: psutil.Process, *, kill: bool) -> None:
    try:
        if kill:
            process.kill()
        else:
            process.resume()  # a suspended process does not handle SIGTERM
            process.terminate()
    except psutil.NoSuchProcess:
        pass
