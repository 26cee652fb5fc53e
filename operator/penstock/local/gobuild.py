"""Builds the control plane from Go modules, if releases cannot be downloaded.

The build takes about five minutes on two cores. Module and build caches are in the work folder, which
is removed at the end, so that an interrupted build leaves nothing behind. Several builds share them within
`shared_cache`, which names their folder in PENSTOCK_GO_CACHE.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from penstock.clients.machine.caches import cache_root
from penstock.local.versions import ETCD, KUBERNETES, KUBERNETES_BINARIES

GO_VERSION = "1.26.0"
SHARED_CACHE = "PENSTOCK_GO_CACHE"
# Advice for users without Go, where installed binaries are used.
OR_INSTALL = ", or put the binaries on PATH or in the folder that KUBEBUILDER_ASSETS names"

ETCD_MAIN = """package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
"""


class BuildFailed(Exception):
    """The Go build failed or could not start; the text says what to do."""


@contextmanager
def shared_cache() -> Iterator[None]:
    """Let the builds within the block share their caches, also those of processes that it starts."""
    if SHARED_CACHE in os.environ:
        yield
        return
    parent = cache_root() / "bin"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".go-", dir=parent) as folder:
        os.environ[SHARED_CACHE] = folder
        try:
            yield
        finally:
            del os.environ[SHARED_CACHE]


def kubernetes_go_mod(upstream: str, version: str = KUBERNETES) -> str:
    """Write the go.mod that builds Kubernetes as a dependency.

    upstream: text of Kubernetes' own go.mod, which takes its libraries from `./staging`. As a
    dependency they are modules of the same names, at v0 with the same minor and patch version.
    """
    staging = re.findall(r"^\s*(?:replace\s+)?(k8s\.io/[\w.-]+) => \./staging/", upstream, re.M)
    _, minor_patch = version.split(".", 1)
    lines = [
        "module penstock.local/kubernetes",
        f"go {GO_VERSION}",
        f"godebug default=go{GO_VERSION.rsplit('.', 1)[0]}",
        f"require k8s.io/kubernetes v{version}",
        *(f"replace {name} => {name} v0.{minor_patch}" for name in staging),
    ]
    return "\n".join(lines) + "\n"


def kubernetes_tools_go(names: Sequence[str] = KUBERNETES_BINARIES) -> str:
    """Write the Go file whose imports make the commands dependencies of the module."""
    imports = "".join(f'import _ "k8s.io/kubernetes/cmd/{name}"\n' for name in names)
    return f"//go:build tools\n\npackage tools\n\n{imports}"


def require_go(what: str, otherwise: str = "") -> None:
    """Raise BuildFailed if there is no Go toolchain.

    what: what it would build, for the message. otherwise: what a user can do instead.
    """
    if shutil.which("go") is None:
        raise BuildFailed(
            f"There is no Go toolchain to build {what}: install Go {GO_VERSION} or newer{otherwise}."
        )


def build(work: Path, destination: Path, names: Sequence[str], say: Callable[[str], None]) -> None:
    """Build the binaries `names` into `destination`. Raises BuildFailed."""
    require_go(", ".join(names), OR_INSTALL)
    go = Go(work)
    try:
        commands = [name for name in names if name != "etcd"]
        if commands:
            _build_kubernetes(go, work / "kubernetes", destination, commands, say)
        if "etcd" in names:
            _build_etcd(go, work / "etcd", destination, say)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _build_kubernetes(
    go: "Go", source: Path, destination: Path, names: Sequence[str], say: Callable[[str], None]
) -> None:
    """Build all commands in one call, so that linking and compiling overlap."""
    say(f"fetching the source of Kubernetes {KUBERNETES}")
    source.mkdir(parents=True)
    module = json.loads(go(source, "mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}"))
    upstream = (Path(module["Dir"]) / "go.mod").read_text()
    (source / "go.mod").write_text(kubernetes_go_mod(upstream))
    (source / "tools.go").write_text(kubernetes_tools_go(names))
    go(source, "mod", "tidy")
    say(f"building {', '.join(names)} {KUBERNETES}")
    flags = f"-s -w -X k8s.io/component-base/version.gitVersion=v{KUBERNETES}"
    packages = [f"k8s.io/kubernetes/cmd/{name}" for name in names]
    go(source, "build", "-ldflags", flags, "-o", f"{destination}/", *packages)


def _build_etcd(go: "Go", source: Path, destination: Path, say: Callable[[str], None]) -> None:
    say(f"building etcd {ETCD}")
    source.mkdir(parents=True)
    (source / "main.go").write_text(ETCD_MAIN)
    (source / "go.mod").write_text(
        f"module penstock.local/etcd\ngo {GO_VERSION}\nrequire go.etcd.io/etcd/server/v3 v{ETCD}\n"
    )
    go(source, "mod", "tidy")
    go(source, "build", "-ldflags", "-s -w", "-o", str(destination / "etcd"), ".")


class Go:
    """Runs the `go` command with its caches in the shared folder, or in `work`.

    bin_folder: of `go install`.
    """

    def __init__(self, work: Path, bin_folder: Path | None = None) -> None:
        caches = Path(os.environ.get(SHARED_CACHE, work))
        self._environment = os.environ | {
            "CGO_ENABLED": "0",
            "GOCACHE": str(caches / "gocache"),
            # Debug information is stripped anyway; without it, and with fewer garbage collections,
            # compiling takes a fifth less. Packages compiled with other flags are not shared.
            "GOFLAGS": "-modcacherw -buildvcs=false -trimpath -gcflags=all=-dwarf=false",
            "GOBIN": str(bin_folder or work / "bin"),
            "GOGC": "400",
            "GOPATH": str(caches / "gopath"),
            "GOMODCACHE": str(caches / "gopath" / "mod"),
            "GOWORK": "off",
        }

    def __call__(self, cwd: Path, *args: str) -> str:
        done = subprocess.run(
            ["go", *args],
            cwd=cwd,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            tail = "\n".join(done.stderr.strip().splitlines()[-8:])
            raise BuildFailed(f"`go {' '.join(args[:2])}` failed:\n{tail}")
        return done.stdout
