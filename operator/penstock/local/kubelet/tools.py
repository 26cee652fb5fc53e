"""Programs of a node: those that its machine must have, and those that are built once from Go modules."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from penstock.local.go_tool import ensure_built
from penstock.local.gobuild import GO_VERSION, Go
from penstock.local.kubelet.commands import run
from penstock.local.kubelet.configuration import nodes_folder
from penstock.local.record import Cluster, ClusterError, write_private
from penstock.local.versions import CNI_PLUGINS, CONTAINERD, COREDNS, KUBE_ROUTER, METRICS_SERVER

# A DNS server with the plugins that a cluster's Services need, without clients of clouds.
DNS_SERVER_GO = """package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	dnsserver.Directives = []string{"bind", "errors", "cache", "kubernetes"}
	coremain.Run()
}
"""

# The program that holds the namespaces of a pod.
PAUSE_GO = """package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
}
"""

# Program -> package of Debian and Ubuntu that installs it.
PACKAGES = {
    "ip": "iproute2",
    "ipset": "ipset",
    "iptables": "iptables",
    "nft": "nftables",
    "runc": "runc",
    "unshare": "util-linux",
}


@dataclass(frozen=True, slots=True)
class Build:
    """Programs that are built from one Go module into one folder of the cache.

    packages: with `@version`. source: text of a program of one file, in place of packages. requires: line
    of its go.mod.
    """

    folder: str
    names: tuple[str, ...]
    packages: tuple[str, ...] = ()
    source: str = ""
    requires: str = ""


_CNI = "github.com/containernetworking/plugins/plugins"
_CONTAINERD = "github.com/containerd/containerd/v2/cmd"
_CONTAINERD_NAMES = ("containerd", "containerd-shim-runc-v2", "ctr")
BUILDS = (
    Build(
        f"containerd-{CONTAINERD}",
        _CONTAINERD_NAMES,
        tuple(f"{_CONTAINERD}/{name}@v{CONTAINERD}" for name in _CONTAINERD_NAMES),
    ),
    Build(
        f"cni-plugins-{CNI_PLUGINS}",
        ("ptp", "loopback", "host-local", "portmap"),
        tuple(
            f"{_CNI}/{path}@v{CNI_PLUGINS}"
            for path in ("main/ptp", "main/loopback", "ipam/host-local", "meta/portmap")
        ),
    ),
    # Enforces NetworkPolicies with iptables and ipset: not every kernel has the queues of nftables.
    Build(
        f"kube-router-{KUBE_ROUTER}",
        ("kube-router",),
        (f"github.com/cloudnativelabs/kube-router/v2/cmd/kube-router@v{KUBE_ROUTER}",),
    ),
    Build(
        f"metrics-server-{METRICS_SERVER}",
        ("metrics-server",),
        (f"sigs.k8s.io/metrics-server/cmd/metrics-server@v{METRICS_SERVER}",),
    ),
    Build(
        f"coredns-{COREDNS}",
        ("coredns",),
        source=DNS_SERVER_GO,
        requires=f"require github.com/coredns/coredns v{COREDNS}",
    ),
    Build("pause-1", ("pause",), source=PAUSE_GO),
)


def require_packages(*, may_install: bool, say: Callable[[str], None]) -> None:
    """Check that the machine has the programs of PACKAGES. Raises ClusterError.

    may_install: install missing ones with apt-get.
    """
    missing = sorted({package for name, package in PACKAGES.items() if shutil.which(name) is None})
    if not missing:
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
    if not may_install:
        raise ClusterError(
            f"A node with a kubelet needs the packages {', '.join(missing)}: install them "
            f"({' '.join(command)}), or add --install-packages."
        )
    if shutil.which("apt-get") is None:
        raise ClusterError(f"There is no apt-get: install {', '.join(missing)} yourself.")
    say(f"installing {', '.join(missing)}")
    run(command)


def ensure_tools(say: Callable[[str], None]) -> Mapping[str, Path]:
    """Return the path of each program built from Go, by name. Raises BuildFailed."""
    found: dict[str, Path] = {}
    for build in BUILDS:
        folder = ensure_built(build.folder, ", ".join(build.names), partial(_build, build), say)
        found |= {name: folder / name for name in build.names}
    return found


def _build(build: Build, work: Path, folder: Path) -> None:
    """Build programs into `folder`."""
    go = Go(work, bin_folder=folder)
    if build.packages:
        go(work, "install", "-ldflags", "-s -w", *build.packages)
        return
    (work / "main.go").write_text(build.source)
    module = f"module penstock.local/tool\n\ngo {GO_VERSION}\n\n{build.requires}\n"
    (work / "go.mod").write_text(module)
    go(work, "mod", "tidy")
    go(work, "build", "-ldflags", "-s -w", "-o", str(folder / build.names[0]), ".")


def write_paths(cluster: Cluster, tools: Mapping[str, Path]) -> None:
    """Record the paths of the programs of a cluster's nodes, so that each start uses the same."""
    write_private(_paths_file(cluster), json.dumps(dict(tools), default=str).encode())


def read_paths(cluster: Cluster) -> Mapping[str, Path]:
    """Read the paths that `write_paths` recorded, by name."""
    recorded = json.loads(_paths_file(cluster).read_text())
    return {name: Path(path) for name, path in recorded.items()}


def _paths_file(cluster: Cluster) -> Path:
    return nodes_folder(cluster) / "tools.json"
