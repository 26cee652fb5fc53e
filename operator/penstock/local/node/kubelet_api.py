"""The part of the kubelet's HTTPS API that `kubectl logs` needs, for the API server alone."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from penstock.adapters.watch import Mirror
from penstock.local.components import KUBELET_PORT
from penstock.local.record import Cluster

API_SERVER = "kube-apiserver"
POLL_S = 0.3


async def serve_logs(cluster: Cluster, pods: Mirror) -> web.AppRunner:
    """Listen on the node's address; the caller calls `cleanup`."""
    pki = cluster.folder / "pki"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki / "ca.crt"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(pki / "node.crt", pki / "node.key")
    app = web.Application(middlewares=[only_api_server])
    app["cluster"], app["pods"] = cluster, pods
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", container_logs)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, cluster.address, KUBELET_PORT, ssl_context=context).start()
    return runner


@web.middleware
async def only_api_server(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    assert request.transport is not None
    subject = request.transport.get_extra_info("peercert", {}).get("subject", ())
    if (("commonName", API_SERVER),) not in subject:
        raise web.HTTPForbidden
    return await handler(request)


async def container_logs(request: web.Request) -> web.StreamResponse:
    cluster: Cluster = request.app["cluster"]
    names = request.match_info
    pod = request.app["pods"].get((names["namespace"], names["pod"]))
    if pod is None:
        raise web.HTTPNotFound(text="no such pod on this node")
    folder = cluster.folder / "pods" / pod["metadata"]["uid"] / "containers" / names["container"]
    path = folder / ("log.previous" if request.query.get("previous") == "true" else "log")
    if not path.is_file():
        raise web.HTTPNotFound(text="this container has no log yet")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    position = tail_offset(path, request.query.get("tailLines"))
    follow = request.query.get("follow") == "true"
    while True:
        with path.open("rb") as file:
            file.seek(position)
            chunk = file.read(1 << 20)
        position += len(chunk)
        if chunk:
            await response.write(chunk)
        elif not follow:
            return response
        else:
            await asyncio.sleep(POLL_S)
            if not path.is_file():
                return response


def tail_offset(path: Path, lines: str | None) -> int:
    """Where the last `lines` lines begin; 0 without a number."""
    if not lines or not lines.isdecimal():
        return 0
    content = path.read_bytes()
    position = len(content)
    for _ in range(int(lines) + 1):
        position = content.rfind(b"\n", 0, position)
        if position < 0:
            return 0
    return position + 1
