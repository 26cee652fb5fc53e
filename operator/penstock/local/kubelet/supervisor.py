"""First process of a node: prepares its mounts, and keeps the node's programs running.

It runs in a mount, process and host-name namespace of its own, in the node's network namespace. When it
ends, the kernel ends all containers and removes all mounts of the node.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from penstock.clients.machine.clock import monotonic, sleep
from penstock.local.kubelet import addresses
from penstock.local.kubelet.configuration import (
    CONTAINERD_SOCKET,
    node_folder,
    node_name,
)
from penstock.local.processes import COMPONENT
from penstock.local.record import Cluster

RESTART_PAUSE_S = 1.0
START_TIMEOUT_S = 30.0
# The kubelet writes them, and they are the whole machine's.
KERNEL_SETTINGS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")
# Folder below the node's -> path at which programs expect it.
PRIVATE_FOLDERS = {
    "log": "/var/log",
    "plugins": "/var/lib/kubelet",
    "cni-cache": "/var/lib/cni",
}
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


class Supervisor:
    """Starts the programs of a node, and those that have ended again."""

    def __init__(self, cluster: Cluster, index: int, tools: Mapping[str, Path]) -> None:
        self._cluster = cluster
        self._name = node_name(index)
        self._folder = node_folder(cluster, index)
        self._tools = tools
        self._commands = commands(cluster, index, tools)
        self._running: dict[int, str] = {}

    def run(self) -> None:
        """Run until SIGTERM."""
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._end)
        mount_private_folders(self._folder)
        keep_kernel_settings()
        self._start("containerd")
        self._wait_for_containerd()
        for name in self._commands:
            if name != "containerd":
                self._start(name)
        while True:
            self._restart_ended()

    def _start(self, name: str) -> None:
        component = program_component(self._name, name)
        log = self._cluster.logs / f"{component}.log"
        folders = [str(self._tools["containerd"].parent), *SYSTEM_FOLDERS]
        environment = os.environ | {
            "PATH": os.pathsep.join(folders),
            COMPONENT: component,
        }
        with log.open("ab") as output:
            process = subprocess.Popen(
                self._commands[name],
                env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        self._running[process.pid] = name

    def _wait_for_containerd(self) -> None:
        deadline = monotonic() + START_TIMEOUT_S
        while not Path(CONTAINERD_SOCKET).exists():
            if monotonic() > deadline:
                sys.exit("containerd did not start")
            sleep(0.1)

    def _restart_ended(self) -> None:
        """Wait for a child, also one that a container's shim left behind; start a program again."""
        try:
            pid, _ = os.wait()
        except ChildProcessError:
            sleep(RESTART_PAUSE_S)
            return
        if name := self._running.pop(pid, None):
            sleep(RESTART_PAUSE_S)
            self._start(name)

    def _end(self, number: int, frame: FrameType | None) -> None:
        sys.exit(0)  # the kernel kills the other processes of the namespace


def program_component(node: str, program: str) -> str:
    """Name of a program of a node: of its log, and of the component that its processes belong to."""
    return f"{node}-{program}"


def commands(
    cluster: Cluster, index: int, tools: Mapping[str, Path]
) -> Mapping[str, Sequence[str]]:
    """Build the command lines of a node's programs, by name."""
    folder, name = node_folder(cluster, index), node_name(index)
    return {
        "containerd": [str(tools["containerd"]), f"--config={folder}/containerd.toml"],
        "kubelet": [
            str(tools["kubelet"]), f"--config={folder}/kubelet.json",
            f"--kubeconfig={folder}/kubelet.kubeconfig", f"--root-dir={folder}/kubelet",
            f"--hostname-override={name}", f"--cert-dir={folder}/kubelet-pki",
            f"--node-ip={addresses.node_address(cluster.network, index)}",
        ],
        "kube-proxy": [str(tools["kube-proxy"]), f"--config={folder}/kube-proxy.json"],
        "kube-router": [
            str(tools["kube-router"]), f"--kubeconfig={folder}/kube-router.kubeconfig",
            f"--hostname-override={name}", "--run-firewall=true", "--run-router=false",
            "--run-service-proxy=false",
            f"--service-cluster-ip-range={cluster.service_range}",
            "--health-port=0", "--metrics-port=0",
        ],
    }  # fmt: skip


def mount_private_folders(folder: Path) -> None:
    """Give the node folders of its own where programs expect fixed paths."""
    _run("mount", "--make-rshared", "/")
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    for inside, target in PRIVATE_FOLDERS.items():
        source = folder / inside
        source.mkdir(parents=True, exist_ok=True)
        Path(target).mkdir(parents=True, exist_ok=True)
        _run("mount", "--bind", str(source), target)


def keep_kernel_settings() -> None:
    """Let the kubelet write KERNEL_SETTINGS to files of the node, so that the machine keeps its values."""
    for setting in KERNEL_SETTINGS:
        target_file = Path("/proc/sys") / setting
        private = Path("/run/settings") / setting
        private.parent.mkdir(parents=True, exist_ok=True)
        private.write_text(target_file.read_text())
        _run("mount", "--bind", str(private), str(target_file))


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
