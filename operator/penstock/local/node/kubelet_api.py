"""Serves the part of the kubelet's HTTPS API that `kubectl logs` needs, to the API server only."""

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import BinaryIO

from aiohttp import web

from penstock.clients.kubernetes.informer import Informer
from penstock.local.components import KUBELET_PORT
from penstock.local.record import Cluster

API_SERVER = "kube-apiserver"
POLL_S = 0.3
# Options of the log API that are refused, as ignoring them would return a wrong log.
UNSUPPORTED = ("sinceSeconds", "sinceTime", "timestamps", "limitBytes")

HasEnded = Callable[[str, str], bool]  # (pod uid, container name) -> whether its last run has ended


async def serve_logs(cluster: Cluster, pods: Informer, has_ended: HasEnded) -> web.AppRunner:
    """Start the HTTPS server on the node's address. The caller ends it with `cleanup`."""
    pki = cluster.folder / "pki"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki / "ca.crt"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(pki / "node.crt", pki / "node.key")
    app = web.Application(middlewares=[only_api_server])
    app["cluster"], app["pods"], app["has_ended"] = cluster, pods, has_ended
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", container_logs)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, cluster.address, KUBELET_PORT, ssl_context=context).start()
    return runner


@web.middleware
async def only_api_server(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer 403 unless the client certificate is the API server's."""
    assert request.transport is not None
    subject = request.transport.get_extra_info("peercert", {}).get("subject", ())
    if (("commonName", API_SERVER),) not in subject:
        raise web.HTTPForbidden
    return await handler(request)


async def container_logs(request: web.Request) -> web.StreamResponse:
    """Answer a request for a container's log, of the current or the previous run."""
    names, query = request.match_info, request.query
    pod = request.app["pods"].get((names["namespace"], names["pod"]))
    if pod is None:
        raise web.HTTPNotFound(text="no such pod on this node")
    if refused := [name for name in UNSUPPORTED if query.get(name, "false") != "false"]:
        raise web.HTTPBadRequest(text=f"the node agent does not support {', '.join(refused)}")
    spec, uid, name = pod["spec"], pod["metadata"]["uid"], names["container"]
    if all(c["name"] != name for c in [*spec.get("initContainers", []), *spec["containers"]]):
        raise web.HTTPNotFound(text=f"the pod has no container {name!r}")
    folder = request.app["cluster"].folder / "pods" / uid / "containers" / name
    is_previous = query.get("previous") == "true"
    path = folder / ("log.previous" if is_previous else "log")
    if not path.is_file():
        raise web.HTTPNotFound(text="this container has no log yet")
    follow = query.get("follow") == "true" and not is_previous
    with path.open("rb") as log:
        return await _send(request, log, path, follow, lambda: request.app["has_ended"](uid, name))


async def _send(
    request: web.Request, log: BinaryIO, path: Path, follow: bool, has_ended: Callable[[], bool]
) -> web.StreamResponse:
    """Send the log of one run; with `follow`, until the run has ended and the whole log is sent."""
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    log.seek(tail_offset(path, request.query.get("tailLines")))
    while True:
        # Checked before the read, so that the last output is not missed.
        is_done = not follow or has_ended() or not _is_current(log, path)
        if log.tell() > os.fstat(log.fileno()).st_size:  # the agent truncated a large log
            log.seek(0, os.SEEK_END)
        if chunk := log.read(1 << 20):
            await response.write(chunk)
        elif is_done or request.transport is None or request.transport.is_closing():
            return response
        else:
            await asyncio.sleep(POLL_S)


def _is_current(log: BinaryIO, path: Path) -> bool:
    """Whether the open file is still the one at this path. A new run starts a new file."""
    try:
        return os.path.samestat(os.fstat(log.fileno()), path.stat())
    except FileNotFoundError:
        return False


def tail_offset(path: Path, lines: str | None) -> int:
    """Return the byte offset of the last `lines` lines; 0 if `lines` is not a number."""
    if not lines or not lines.isdecimal():
        return 0
    content = path.read_bytes()
    position = len(content)
    for _ in range(int(lines) + 1):
        position = content.rfind(b"\n", 0, position)
        if position < 0:
            return 0
    return position + 1
