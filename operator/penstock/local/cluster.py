"""A local cluster: up, down, and what is known of it.

Each cluster has a loopback network of its own, 127.N.0.0/16. Its components and its node listen on
127.N.0.1 at their usual ports and its pods on 127.N.x.y, so clusters never meet.
"""

import json
import secrets
import shutil
import socket
import ssl
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from penstock.adapters.clock import monotonic, sleep
from penstock.local import components, processes
from penstock.local.binaries import ensure_binaries
from penstock.local.paths import clusters_root
from penstock.local.pki import Authority, write_secret, write_signing_key

Say = Callable[[str], None]

FIRST_NETWORK, LAST_NETWORK = 10, 250
READY_TIMEOUT_S = 60.0
POD_GRACE_S = 15.0
COMPONENT_GRACE_S = 0.5
GATEWAY_PORT = 8080
CONTROL_PLANE = ("etcd", "apiserver", "controller-manager", "scheduler")


class ClusterError(Exception):
    """The cluster cannot do what was asked; the text says why and what helps."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a cluster is and how it is told apart."""

    name: str
    cluster_id: str
    network: int
    allocatable: Mapping[str, str]

    @property
    def folder(self) -> Path:
        return clusters_root() / self.name

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def address(self) -> str:
        return f"127.{self.network}.0.1"

    @property
    def server(self) -> str:
        return f"https://{self.address}:6443"

    @property
    def gateway_url(self) -> str:
        return f"http://{self.address}:{GATEWAY_PORT}"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"


def list_clusters() -> list[Cluster]:
    """Every cluster that `up` has begun and `down` has not removed."""
    return [_read(path) for path in sorted(clusters_root().glob("*/cluster.json"))]


def get(name: str) -> Cluster:
    """Raises ClusterError when there is no such cluster."""
    path = clusters_root() / name / "cluster.json"
    if not path.is_file():
        raise ClusterError(f"There is no local cluster {name!r}; start one: penstock local up")
    return _read(path)


def up(name: str, *, say: Say, allocatable: Mapping[str, str] = {}) -> Cluster:
    """Start a cluster without Penstock in it, or find it running.

    allocatable: extended resources that the node claims to have, such as nvidia.com/gpu.
    Whatever stops it half-way (a failed component, Ctrl-C) is cleaned up before it raises.
    """
    if not sys.platform.startswith("linux"):
        raise ClusterError("Local clusters need Linux: pods get addresses of 127.0.0.0/8.")
    existing = clusters_root() / name / "cluster.json"
    if existing.is_file():
        with _starting(name):
            if not dead_components(_read(existing)):
                say(f"cluster {name!r} is already up")
                return _read(existing)
    down(name)
    binaries = ensure_binaries(say)
    cluster = _claim(name, allocatable)
    with _starting(name):
        try:
            _write_files(cluster)
            _start(cluster, binaries, say)
        except BaseException:
            down(name)
            raise
    return cluster


@contextmanager
def temporary(prefix: str, *, say: Say, allocatable: Mapping[str, str] = {}) -> Iterator[Cluster]:
    """As `up`, of a name that begins with `prefix` and that no other cluster has, until it ends."""
    made = up(f"{prefix}-{secrets.token_hex(3)}", say=say, allocatable=allocatable)
    try:
        yield made
    finally:
        down(made.name)


@contextmanager
def _starting(name: str) -> Iterator[None]:
    """Held by whoever starts the cluster, and let go with its process. Raises ClusterError."""
    try:
        with FileLock(clusters_root() / name / ".starting", timeout=0):
            yield
    except Timeout as error:
        raise ClusterError(
            f"Another process is starting cluster {name!r}: wait for it, or take another name."
        ) from error


def down(name: str) -> None:
    """End every process of a cluster and remove its folder. Nothing to do is fine."""
    folder = clusters_root() / name
    record = folder / "cluster.json"
    if record.is_file():
        cluster_id = _read(record).cluster_id
        # The node agent ends its pods; what it leaves, and a state nobody will read, needs no care.
        processes.end(processes.find(cluster_id, "node-agent"), grace_s=POD_GRACE_S)
        processes.end(processes.find(cluster_id), grace_s=COMPONENT_GRACE_S)
    shutil.rmtree(folder, ignore_errors=True)


def dead_components(cluster: Cluster) -> list[str]:
    """Components that should run and do not."""
    return [
        component
        for component in (*CONTROL_PLANE, "node-agent")
        if not processes.find(cluster.cluster_id, component)
    ]


def _read(path: Path) -> Cluster:
    return Cluster(**json.loads(path.read_text()))


def _claim(name: str, allocatable: Mapping[str, str]) -> Cluster:
    """Take a free network and write the cluster's record, before anything is started."""
    if not name.replace("-", "").isalnum() or name != name.lower():
        raise ClusterError(f"{name!r} is no cluster name: use lower-case letters, digits, dashes")
    root = clusters_root()
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with FileLock(root / ".lock"):
        taken = {cluster.network for cluster in list_clusters()}
        free = (n for n in range(FIRST_NETWORK, LAST_NETWORK) if n not in taken and _is_free(n))
        network = next(free, None)
        if network is None:
            raise ClusterError(
                "No free loopback network is left; end a cluster: penstock local down"
            )
        cluster = Cluster(name, secrets.token_hex(8), network, dict(allocatable))
        try:
            cluster.folder.mkdir(mode=0o700)
        except FileExistsError as error:
            raise ClusterError(
                f"Another process has taken the name {name!r}: take another."
            ) from error
        write_secret(cluster.folder / "cluster.json", json.dumps(asdict(cluster)).encode())
    return cluster


def _is_free(network: int) -> bool:
    """Whether nobody, of this user or another, has a cluster on 127.network.0.0/16."""
    for port in (2379, 2380, 6443, 10250):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((f"127.{network}.0.1", port))
            except OSError:
                return False
    return True


def _write_files(cluster: Cluster) -> None:
    folder = cluster.folder
    for name in ("pki", "logs", "pods"):
        (folder / name).mkdir(mode=0o700)
    authority = Authority(folder / "pki")
    names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1")
    authority.issue("apiserver", "kube-apiserver", addresses=(cluster.address, *names))
    authority.issue("node", "penstock-node", addresses=(cluster.address,))
    write_signing_key(folder / "pki" / "sa.key")
    token = secrets.token_urlsafe(32)
    write_secret(folder / "tokens.csv", components.tokens_csv(token).encode())
    write_secret(folder / "audit-policy.json", components.audit_policy().encode())
    config = components.kubeconfig(cluster.server, folder / "pki" / "ca.crt", token)
    write_secret(cluster.kubeconfig, config.encode())


def _start(cluster: Cluster, binaries: Mapping[str, Path], say: Say) -> None:
    folder, address = cluster.folder, cluster.address
    commands = {
        "etcd": components.etcd(binaries["etcd"], folder, address),
        "apiserver": components.apiserver(binaries["kube-apiserver"], folder, address),
        "controller-manager": components.controller_manager(
            binaries["kube-controller-manager"], folder, address
        ),
        "scheduler": components.scheduler(binaries["kube-scheduler"], folder, address),
        "node-agent": [sys.executable, "-m", "penstock.local.node", cluster.name],
    }
    # An API server that finds no etcd may give up at once.
    ready = {
        "etcd": lambda: _listens(address, 2379),
        "apiserver": lambda: _answers(cluster, "/readyz"),
    }
    for component, command in commands.items():
        say(f"starting {component}")
        started = processes.spawn(
            command,
            cluster_id=cluster.cluster_id,
            component=component,
            log=cluster.logs / f"{component}.log",
        )
        if component in ready:
            _wait(cluster, started, component, ready[component])
    say("waiting for the node")
    _wait(cluster, started, "node-agent", lambda: _node_is_ready(cluster))


def _wait(
    cluster: Cluster, process: psutil.Process, component: str, done: Callable[[], bool]
) -> None:
    deadline = monotonic() + READY_TIMEOUT_S
    while not done():
        if not processes.is_alive(process) or monotonic() > deadline:
            log = cluster.logs / f"{component}.log"
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-6:])
            raise ClusterError(f"{component} did not become ready. Its log ends with:\n{tail}")
        sleep(0.1)


def _listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True


def _node_is_ready(cluster: Cluster) -> bool:
    node = _answer(cluster, "/api/v1/nodes/penstock-node")
    conditions = json.loads(node)["status"].get("conditions", []) if node else []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _answers(cluster: Cluster, path: str) -> bool:
    return _answer(cluster, path) is not None


def _answer(cluster: Cluster, path: str) -> bytes | None:
    """The body of a 200 answer to an administrator's GET, or None."""
    token = (cluster.folder / "tokens.csv").read_text().split(",")[0]
    request = urllib.request.Request(  # noqa: S310 - always https to the cluster's own address
        cluster.server + path, headers={"Authorization": f"Bearer {token}"}
    )
    context = ssl.create_default_context(cafile=str(cluster.folder / "pki" / "ca.crt"))
    try:
        with urllib.request.urlopen(request, timeout=2, context=context) as answer:  # noqa: S310
            body: bytes = answer.read()
            return body
    except OSError:
        return None
