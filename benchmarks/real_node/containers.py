"""Containers of podman with the restrictions that a pod's first container has on a cluster."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from benchmarks.real_node.commands import output, run

from penstock.core.formats.quantity import whole_quantity

PODMAN = ("podman", "--runtime=runc", "--cgroup-manager=cgroupfs")
# podman would raise limits, which takes a right that root may lack.
LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096", "--pull=never")
POLL_S = 0.02


def restrictions(pod: Mapping[str, Any], user: str | None = None) -> list[str]:
    """podman's flags for the security contexts, empty volumes and memory limit of a pod's first container.

    user: instead of the pod's, as a cluster may give pods other ones. Its group is 0 unless it names another.
    """
    container = pod["containers"][0]
    context = pod.get("securityContext", {}) | container["securityContext"]
    flags = [f"--user={user or context['runAsUser']}"]
    if context.get("readOnlyRootFilesystem"):
        flags += ["--read-only", "--read-only-tmpfs=false"]
    if context.get("allowPrivilegeEscalation") is False:
        flags.append("--security-opt=no-new-privileges")
    flags += [f"--cap-drop={name}" for name in context.get("capabilities", {}).get("drop", ())]
    empty = {volume["name"] for volume in pod["volumes"] if "emptyDir" in volume}
    for mount in container["volumeMounts"]:
        if mount["name"] in empty:
            flags.append(f"--tmpfs={mount['mountPath']}:rw,mode=1777")
    memory = container.get("resources", {}).get("limits", {}).get("memory")
    return [*flags, f"--memory={whole_quantity(memory)}"] if memory else flags


def run_inside(image: str, flags: list[str], source: Path) -> str:
    """Run a Python program in a container of an image, and return what it prints."""
    command = [*PODMAN, "run", "--rm", "--interactive", *LIMITS, "--entrypoint=python", *flags]
    with source.open() as program:
        done = subprocess.run(
            [*command, image, "-"], stdin=program, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise RuntimeError(f"{source.name} failed in {image}: {done.stderr[-2000:]}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Stopped:
    """The end of a container after SIGTERM."""

    stop_s: float
    exit_code: int


class Container:
    """A created container, whose process is the image's entry point or the command."""

    def __init__(self, image: str, flags: list[str], command: list[str]) -> None:
        self._id = output(*PODMAN, "create", *LIMITS, *flags, image, *command)

    def start(self) -> None:
        run(*PODMAN, "start", self._id)

    def seconds_until_ready(self, url: str, timeout_s: float) -> float:
        """Start it, and wait until a URL answers with 200. Raises RuntimeError with the log's end."""
        began = time.monotonic()
        self.start()
        while time.monotonic() - began < timeout_s:
            try:
                if httpx.get(url, timeout=1).status_code == httpx.codes.OK:
                    return time.monotonic() - began
            except httpx.TransportError:
                pass
            time.sleep(POLL_S)
        raise RuntimeError(f"{url} did not answer within {timeout_s:.0f} s: {self.log()}")

    def cpu_s(self) -> float:
        """Processor time of the container's first process."""
        pid = output(*PODMAN, "inspect", "--format={{.State.Pid}}", self._id)
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")

    def stop(self, timeout_s: float) -> Stopped:
        """Send SIGTERM, and SIGKILL after the timeout."""
        began = time.monotonic()
        run(*PODMAN, "stop", f"--time={timeout_s:.0f}", self._id)
        stop_s = time.monotonic() - began
        code = output(*PODMAN, "inspect", "--format={{.State.ExitCode}}", self._id)
        return Stopped(stop_s, int(code))

    def log(self) -> str:
        done = subprocess.run(
            [*PODMAN, "logs", "--tail=20", self._id], capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def remove(self) -> None:
        run(*PODMAN, "rm", "--force", "--time=0", self._id)


@contextmanager
def container(image: str, flags: list[str], command: list[str]) -> Iterator[Container]:
    """A container that is removed at the end."""
    created = Container(image, flags, command)
    try:
        yield created
    finally:
        created.remove()
