"""Runs one pod on this node: volumes, containers, probes, restarts and status."""

import asyncio
import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from penstock.clients.kubernetes.resources import PODS
from penstock.clients.machine.clock import monotonic, unix_time
from penstock.clients.machine.error_groups import innermost
from penstock.core.formats.timestamps import timestamp
from penstock.core.spec.service import Object
from penstock.errors import KubeError
from penstock.local import processes
from penstock.local.node.backoff import Backoff
from penstock.local.node.container import Container
from penstock.local.node.container_watch import ContainerWatch
from penstock.local.node.environment import ConfigError
from penstock.local.node.node import Node
from penstock.local.node.podstatus import Terminated, should_restart
from penstock.local.node.report import PodReport
from penstock.local.node.unsupported import REASON, unsupported
from penstock.local.node.variables import Variables
from penstock.local.node.volumes import MountError, Volumes

logger = logging.getLogger(__name__)

RETRY_S = 2.0
POLL_S = 0.05
REFRESH_S = 60.0  # interval of volume updates, about the kubelet's


class PodWorker:
    """Runs one pod from its binding to its removal. `stop` may be called at any time."""

    def __init__(self, node: Node, pod: Object, pod_ip: str) -> None:
        self._node = node
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.folder: Path = node.cluster.folder / "pods" / self.uid
        self._link = node.cluster.folder / "tmp" / self.uid[:8]
        self.pod_ip = pod_ip
        self._report = PodReport(node, pod, pod_ip)
        self._volumes = Volumes(node.kube, pod, self.folder / "volumes")
        self._variables = Variables(node.kube, node.cluster, pod, pod_ip)
        grace_s = float(pod["spec"].get("terminationGracePeriodSeconds", 30))
        self._watch = ContainerWatch(self._report, grace_s, self._end)
        self._running: dict[str, Container] = {}
        self._task: asyncio.Task[None] | None = None
        self._current: dict[str, Container] = {}  # the last run of each container
        self._stopping = False
        self._stop_deadline_s = math.inf

    def start(self) -> None:
        """Start running the pod in a task."""
        self._task = asyncio.create_task(self._run(), name=f"pod {self.pod['metadata']['name']}")

    async def stop(self, grace_s: float) -> None:
        """Stop the pod: preStop, SIGTERM, and SIGKILL after `grace_s` seconds.

        Waits until all processes have ended.
        """
        self._stopping = True
        self.shorten(grace_s)
        if self._running:
            await asyncio.gather(*(self._end(c) for c in list(self._running.values())))
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.to_thread(processes.kill, lambda: processes.find_in_pod(self.uid))

    def shorten(self, grace_s: float) -> None:
        """Shorten the grace period to end in at most `grace_s` seconds from now."""
        self._stop_deadline_s = min(self._stop_deadline_s, monotonic() + grace_s)

    def has_ended(self, name: str) -> bool:
        """Whether the last run of a container has ended."""
        return name not in self._current or self._current[name].has_ended

    async def remove(self) -> None:
        """Delete the pod from the API server, and remove its folder."""
        metadata = self.pod["metadata"]
        self._volumes.unmount()
        self._link.unlink(missing_ok=True)
        await self._node.kube.delete(
            PODS, metadata["namespace"], metadata["name"], uid=self.uid, grace_s=0
        )

    async def _run(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.folder / "name").write_text(self.pod["metadata"]["name"])  # for `penstock local logs`
        if lost := unsupported(self.pod):
            await self._report.refuse(REASON, f"the node agent does not support {', '.join(lost)}")
            return
        deadline_s = self.pod["spec"].get("activeDeadlineSeconds")
        try:
            async with asyncio.timeout(deadline_s), asyncio.TaskGroup() as group:
                await self._report.send()
                await self._mount()
                refreshing = group.create_task(self._refresh_volumes())
                if await self._run_init():
                    async with asyncio.TaskGroup() as containers:
                        for spec in self.pod["spec"]["containers"]:
                            containers.create_task(self._run_with_restarts(spec))
                refreshing.cancel()
        except TimeoutError:
            message = "Pod was active on the node longer than the specified deadline"
            await self._report.fail("DeadlineExceeded", message)
        except Exception as error:
            logger.exception("pod %s", self.pod["metadata"]["name"])
            await self._report.refuse(
                "NodeAgentError", f"the node agent failed: {innermost(error)!r}"
            )

    async def _mount(self) -> None:
        while True:
            try:
                await self._volumes.mount()
                return
            except (MountError, KubeError, OSError) as error:
                await self._report.warn("FailedMount", str(error))
                await asyncio.sleep(RETRY_S)

    async def _refresh_volumes(self) -> None:
        """Update ConfigMaps, Secrets and tokens in the volumes periodically, until cancelled."""
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self._volumes.mount()
            except (MountError, KubeError, OSError) as error:
                await self._report.warn("FailedMount", f"{error}; the volume stays as it was")

    async def _run_init(self) -> bool:
        """Run the init containers one after the other. Returns False if one has failed permanently."""
        for spec in self.pod["spec"].get("initContainers", []):
            await self._run_with_restarts(spec, is_init=True)
            ended = self._report.find(spec["name"]).ended
            if ended is None or ended.exit_code != 0:
                return False
        return True

    async def _run_with_restarts(self, spec: Object, *, is_init: bool = False) -> None:
        """Run a container, and restart it with back-off as the pod's restart policy says."""
        policy = self._report.restart_policy
        if is_init and policy == "Always":
            policy = "OnFailure"
        backoff = Backoff()
        while not self._stopping:
            started_s = monotonic()
            exit_code = await self._run_once(spec)
            await self._report.send()
            if self._stopping or not should_restart(policy, exit_code):
                return
            pause_s, backoff = backoff.next_pause(monotonic() - started_s)
            if pause_s:
                message = f"back-off {pause_s:.0f}s restarting failed container={spec['name']}"
                await self._report.warn("BackOff", message)
                self._report.set_waiting(spec["name"], "CrashLoopBackOff", message)
                await self._report.send()
                await asyncio.sleep(pause_s)

    async def _run_once(self, spec: Object) -> int:
        """Run a container once. Returns its exit code; 128 if it could not be started."""
        name = spec["name"]
        container = await self._prepare(spec)
        started_at = timestamp(unix_time())
        try:
            await container.start()
        except (OSError, ValueError) as error:
            container.has_ended = True
            await self._report.warn("Failed", f"Error: {error}")
            ended = Terminated(128, "StartError", str(error), started_at, timestamp(unix_time()))
            self._report.update(
                name, lambda r: replace(r.terminated(ended), restarts=r.restarts + bool(r.last))
            )
            return 128
        self._running[name] = container
        self._report.update(name, lambda r: r.running(started_at))
        await self._report.event("Normal", "Started", f"Started container {name}")
        watching = asyncio.create_task(self._watch.run(container))
        try:
            exit_code = await container.wait()
        finally:
            watching.cancel()
            self._running.pop(name, None)
        await asyncio.gather(watching, return_exceptions=True)
        reason = "Completed" if exit_code == 0 else "Error"
        message = container.message(exit_code)
        ended = Terminated(exit_code, reason, message, started_at, timestamp(unix_time()))
        self._report.update(name, lambda r: r.terminated(ended))
        return exit_code

    async def _prepare(self, spec: Object) -> Container:
        """Build the container. Waits until its environment and mounts are available."""
        while True:
            try:
                env = await self._variables.from_spec(spec)
                mounts = self._volumes.mounts(spec, env)
                break
            except (ConfigError, MountError, KubeError, OSError) as error:
                text = str(error)
                self._report.set_waiting(spec["name"], "CreateContainerConfigError", text)
                await self._report.send()
                await self._report.warn("Failed", f"Error: {text}")
                await asyncio.sleep(RETRY_S)
        container = Container(
            spec,
            env=env,
            machine=self._variables.machine(),
            marks=self._variables.marks(spec, mounts),
            mounts=mounts,
            folder=self.folder / "containers" / spec["name"],
            pod_ip=self.pod_ip,
            temporary_folder=self._temporary_folder(mounts),
        )
        self._current[container.name] = container
        return container

    def _temporary_folder(self, mounts: Mapping[str, str]) -> str | None:
        """Return a short path of a container's /tmp, since that of a socket has at most 107 characters."""
        target = mounts.get("/tmp")  # noqa: S108 - the container's path, a folder of the pod
        if target is None:
            return None
        self._link.parent.mkdir(exist_ok=True)
        if not self._link.is_symlink():
            self._link.symlink_to(target)
        return str(self._link) if self._link.readlink() == Path(target) else target

    async def _end(self, container: Container, deadline_s: float = math.inf) -> None:
        """Stop a container: preStop, SIGTERM, and SIGKILL at the deadline. Waits until it has ended.

        If the pod is stopped meanwhile, the earlier deadline counts.
        """

        def left_s() -> float:
            return min(deadline_s, self._stop_deadline_s) - monotonic()

        hook = container.spec.get("lifecycle", {}).get("preStop")
        if hook and left_s() > 0:
            acting = asyncio.create_task(container.act(hook, left_s()))
            while not acting.done() and left_s() > 0:
                await asyncio.wait({acting}, timeout=POLL_S)
            failure = acting.result() if acting.done() else "the grace period is over"
            acting.cancel()
            await asyncio.gather(acting, return_exceptions=True)
            if failure:
                await self._report.warn("FailedPreStopHook", failure)
        container.terminate()
        while self._running.get(container.name) is container:
            if left_s() <= 0:
                container.kill()
            await asyncio.sleep(POLL_S)
