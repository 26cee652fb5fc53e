"""Another user of the machine cannot use a cluster's ports, files and processes."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.clients.kubernetes.client import connect
from penstock.clients.kubernetes.resources import PODS, SECRETS
from penstock.demo.stage import poll_until
from penstock.local import cluster as clusters
from penstock.local import processes
from penstock.local.binaries import ensure_binaries
from penstock.local.cluster import Cluster
from penstock.local.startup import components_of

NOBODY = 65534
# The system's Python: the tests' own may be in a folder that other users cannot read.
PYTHON = shutil.which("python3", path="/usr/bin:/bin")

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a process as another user"),
    pytest.mark.skipif(PYTHON is None, reason="no python3 that another user may run"),
]

# Run as another user. Prints a list of what it could access, which should be empty.
INTRUDER = r"""
import json, os, socket, ssl, sys, urllib.error, urllib.request
address, folder, pids, own = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
assert os.getuid() == os.geteuid() == 65534
got = []
for port in (2379, 2380, 6443, 10250, 10251, 10252, 10257, 10259):
    for scheme in ("http", "https"):
        for certificate in (None, own) if scheme == "https" else (None,):
            context = ssl._create_unverified_context()
            if certificate:
                context.load_cert_chain(certificate + "/client.crt", certificate + "/client.key")
            for path in ("/", "/version", "/health", "/healthz", "/metrics", "/api/v1/secrets",
                         "/containerLogs/default/writer/main", "/pods", "/debug/pprof/", "/v3/kv/range",
                         "/v2/keys", "/members"):
                url = f"{scheme}://{address}:{port}{path}"
                try:
                    data = b'{"key": "AA==", "range_end": "AA=="}' if path.startswith("/v3") else None
                    urllib.request.urlopen(url, data, timeout=5, context=context).read()
                    got.append(url)
                except (OSError, ValueError, urllib.error.URLError) as error:
                    code = getattr(error, "code", None)
                    if code not in (None, 400, 401, 403):
                        got.append(f"{url}: {code}")
    # Not HTTP: what a client of etcd's gRPC begins with
    try:
        with socket.create_connection((address, port), timeout=5) as plain:
            plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            if plain.recv(64)[3:4] == b"\4":
                got.append(f"HTTP/2 without TLS on {port}")
    except OSError:
        pass
for path in json.loads(sys.stdin.read()):
    for work in (lambda: os.listdir(path), lambda: open(path, "rb"), lambda: open(path, "ab")):
        try:
            work()
            got.append(path)
        except OSError:
            pass
for pid in pids:
    for name in ("environ", "cwd", "fd", "root", "mem"):
        path = f"/proc/{pid}/{name}"
        try:
            os.readlink(path) if name in ("cwd", "root") else (
                os.listdir(path) if name == "fd" else open(path, "rb").read(1))
            got.append(path)
        except OSError:
            pass
    try:
        os.kill(pid, 0)
        got.append(f"kill {pid}")
    except PermissionError:
        pass
print(json.dumps(got))
"""


@pytest.fixture
def own_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster in a cache folder that others can read, so that only its own modes protect it."""
    binaries = ensure_binaries(lambda _: None)
    with tempfile.TemporaryDirectory(prefix="penstock-cache-", dir="/tmp") as cache:
        os.chmod(cache, 0o755)
        monkeypatch.setenv("PENSTOCK_CACHE_DIR", cache)
        monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{binaries['etcd'].parent}")
        previous = os.umask(0o000)
        try:
            with clusters.temporary("shared", say=lambda _: None) as made:
                yield made
        finally:
            os.umask(previous)


async def test_nothing_is_open_to_another_user(own_cluster: Cluster, tmp_path: Path) -> None:
    """A certificate of the user's own authority gives no access either."""
    await _run_a_pod(own_cluster)
    running = processes.find(own_cluster.cluster_id)
    assert len(running) >= len(components_of(own_cluster)) + 1
    files = [str(own_cluster.folder), *(str(path) for path in own_cluster.folder.rglob("*"))]
    wanted = ("kubeconfig", "tokens.csv", "sa.key", "etcd/client.key", "volumes/s/key", "main/log")
    assert all(any(path.endswith(name) for path in files) for name in wanted)
    pids = [process.pid for process in running]
    got = _as_nobody(own_cluster, files, pids)
    assert got == []
    token = (own_cluster.folder / "tokens.csv").read_text().split(",")[0]
    for process in running:  # command lines are readable by all users
        assert token not in " ".join(process.cmdline())
    for path in own_cluster.folder.rglob("*"):
        if path.suffix in (".key", ".csv") or path.name == "kubeconfig":
            assert path.stat().st_mode & 0o077 == 0, path


def test_the_intruder_detects_open_access(own_cluster: Cluster) -> None:
    """The intruder reports an open folder and an open server, so its empty list means something."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        for process in processes.find(own_cluster.cluster_id, "scheduler"):
            process.kill()
            psutil.wait_procs([process], timeout=5)
        command = [
            PYTHON,
            "-m",
            "http.server",
            "10259",
            "--bind",
            own_cluster.address,
            "-d",
            folder,
        ]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while server.poll() is None and not _listens(own_cluster.address, 10259):
                pass
            got = _as_nobody(own_cluster, [folder], [])
        finally:
            server.kill()
            server.wait()
    assert f"http://{own_cluster.address}:10259/" in got
    assert folder in got


def _listens(address: str, port: int) -> bool:
    return any(
        (c.laddr.ip, c.laddr.port) == (address, port)
        for c in psutil.net_connections("tcp4")
        if c.status == psutil.CONN_LISTEN
    )


def _as_nobody(own_cluster: Cluster, files: list[str], pids: list[int]) -> list[str]:
    from penstock.local.pki import Authority

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Authority(Path(folder)).issue("client", "kube-apiserver", organization="system:masters")
        for path in (Path(folder), *Path(folder).iterdir()):
            os.chown(path, NOBODY, NOBODY)
        done = subprocess.run(
            [
                str(PYTHON), "-c", INTRUDER, own_cluster.address, str(own_cluster.folder),
                json.dumps(pids), folder,
            ],
            user=NOBODY, group=NOBODY, extra_groups=[], input=json.dumps(files), text=True,
            stdout=subprocess.PIPE, check=True, env={}, cwd="/",
        )  # fmt: skip
    got: list[str] = json.loads(done.stdout)
    return got


async def _run_a_pod(own_cluster: Cluster) -> None:
    """Run a pod with a secret in a volume and a line in its log."""
    body: dict[str, Any] = {
        "metadata": {"name": "writer"},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "none",
                    "command": ["sh", "-c", "echo a line; exec sleep 600"],
                    "volumeMounts": [{"name": "s", "mountPath": "/secret"}],
                }
            ],
            "volumes": [{"name": "s", "secret": {"secretName": "stuff"}}],
        },
    }
    async with await connect(own_cluster.kubeconfig) as kube:
        await kube.create(
            SECRETS, "default", {"metadata": {"name": "stuff"}, "stringData": {"key": "s3cret"}}
        )
        await kube.create(PODS, "default", body)

        async def runs() -> bool:
            found = await kube.get(PODS, "default", "writer")
            return bool(found.get("status", {}).get("phase") == "Running")

        await poll_until(runs, within_s=30, what="running")
