"""Killing the operator before or after its Nth write, and what the cluster looks like afterwards.

A proxy stands between the operator and the API server. It counts writes; at the chosen one it kills
the operator, either before the write goes on or after it was made and before the answer comes back.
"""

import asyncio
import contextlib
import os
import re
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiohttp import web

from penstock.adapters.kube import DEPLOYMENTS, INFERENCE_SERVICES, LEASES, PODS, Kube
from penstock.core.service import SERVICE_LABEL
from penstock.demo.stage import eventually
from penstock.local.cluster import Cluster
from penstock.local.components import kubeconfig

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
HOP_BY_HOP = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "authorization"}
)


@dataclass(frozen=True, slots=True)
class Moment:
    """The write at which the operator dies. number 0: it does not."""

    number: int
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} write {self.number}"


MOMENTS = tuple(Moment(n, after) for n in range(1, 11) for after in (False, True))


class KillingProxy:
    """Forwards to the API server as its administrator; Lease traffic is not counted."""

    def __init__(self, cluster: Cluster, moment: Moment) -> None:
        self._cluster = cluster
        self._moment = moment
        self._token = (cluster.folder / "tokens.csv").read_text().split(",")[0]
        self._tls = ssl.create_default_context(cafile=str(cluster.folder / "pki" / "ca.crt"))
        self.operator: asyncio.subprocess.Process | None = None
        self.writes = 0
        self.killed = False

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        app = web.Application(client_max_size=16 * 2**20)
        app.router.add_route("*", "/{tail:.*}", self._forward)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        counted = request.method in WRITES and "/leases" not in request.path
        self.writes += counted
        fatal = counted and self.writes == self._moment.number and not self.killed
        if fatal and not self._moment.after:
            self._kill()
            raise web.HTTPServiceUnavailable
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP}
        headers["Authorization"] = f"Bearer {self._token}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                request.method, self._cluster.server + request.path_qs, headers=headers,
                data=await request.read() or None, ssl=self._tls,
                skip_auto_headers=("Content-Type",), timeout=aiohttp.ClientTimeout(total=None),
            ) as upstream,
        ):  # fmt: skip
            if fatal:
                self._kill()
                raise web.HTTPServiceUnavailable
            answer = web.StreamResponse(status=upstream.status)
            answer.content_type = upstream.content_type
            await answer.prepare(request)
            with contextlib.suppress(ConnectionError, aiohttp.ClientError):  # it has just died
                async for chunk in upstream.content.iter_any():
                    await answer.write(chunk)
            return answer

    def _kill(self) -> None:
        self.killed = True
        assert self.operator is not None
        os.kill(self.operator.pid, signal.SIGKILL)


async def survive(
    cluster: Cluster, kube: Kube, namespace: str, moment: Moment, spec: Mapping[str, object]
) -> dict[str, object]:
    """Apply a service, kill the operator at `moment`, start another, and return the end state."""
    proxy = KillingProxy(cluster, moment)
    body = {
        "apiVersion": "serving.penstock.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": namespace},
        "spec": dict(spec),
    }
    async with proxy.listening() as url:
        config = cluster.folder / f"kubeconfig-{namespace}"
        config.write_text(kubeconfig(url, cluster.folder / "pki" / "ca.crt", "unused"))
        try:
            await kube.create(INFERENCE_SERVICES, namespace, body)
            proxy.operator = await _start(config, namespace)
            if moment.number:
                await asyncio.wait_for(proxy.operator.wait(), 60)
                # A dead leader's Lease runs out by itself, in ten seconds; this saves the wait.
                await kube.delete(LEASES, namespace, "penstock-operator")
                proxy.operator = await _start(config, namespace)
            await eventually(
                lambda: _is_ready(kube, namespace), within_s=90, what=f"Ready, killed {moment}"
            )
            await asyncio.sleep(3)  # whatever a confused operator would still do
            return await end_state(kube, namespace)
        finally:
            if proxy.operator is not None and proxy.operator.returncode is None:
                proxy.operator.kill()
                await proxy.operator.wait()
            config.unlink()


async def _start(config: Path, namespace: str) -> asyncio.subprocess.Process:
    environment = {k: v for k, v in os.environ.items() if k != "PENSTOCK_SERVICE_ACCOUNT_DIR"}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "penstock", "operator", "run", "--engine-image", "penstock",
        "--host", "127.0.0.1", "--port", "0", "--lease-namespace", namespace,
        env=environment | {"KUBECONFIG": str(config)},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip


async def _is_ready(kube: Kube, namespace: str) -> bool:
    found = await kube.get(INFERENCE_SERVICES, namespace, "chat")
    status = found.get("status", {})
    ready = {c["type"]: c["status"] for c in status.get("conditions", [])}.get("Ready")
    return ready == "True" and "scaling" in status


async def end_state(kube: Kube, namespace: str) -> dict[str, object]:
    """Children by kind and name without random parts, and what the status says of them."""
    found = await kube.get(INFERENCE_SERVICES, namespace, "chat")
    selector = f"{SERVICE_LABEL}=chat"
    children = []
    for resource in (DEPLOYMENTS, PODS):
        items, _ = await kube.list(resource, namespace, labelSelector=selector)
        names = [item["metadata"]["name"] for item in items]
        children += [
            f"{resource.plural}/{re.sub(r'-[a-z0-9]{8,10}-[a-z0-9]{5}$', '', n)}" for n in names
        ]
    status = found["status"]
    return {
        "children": sorted(children),
        "conditions": {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]},
        "traffic": status["traffic"],
        "replicas": (status["replicas"], status["readyReplicas"]),
        "desired": status["scaling"]["desired"],
    }
