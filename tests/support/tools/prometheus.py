"""Finds, downloads or builds the programs of Prometheus, in that order."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from penstock.clients.machine.caches import cache_root
from penstock.local.cached_folder import ensure_folder
from penstock.local.download import DownloadFailed, download_archived, machine
from penstock.local.gobuild import OR_INSTALL, Go, require_go
from penstock.local.installed import find_installed

PROMETHEUS = "3.11.3"
RELEASES = "https://github.com/prometheus/prometheus/releases/download"
MODULE = "github.com/prometheus/prometheus"
# Service discovery of clouds takes most of the compile time, and is not needed; that of Kubernetes is what
# examples/prometheus.yaml uses.
TAGS = "netgo,remove_all_sd,enable_kubernetes_sd"

# prometheus: the server. promtool: checks and tests its rules.
Program = Literal["prometheus", "promtool"]


def ensure(program: Program, say: Callable[[str], None]) -> Path:
    """Return the path of the program. say: called before each slow step. Raises BuildFailed."""
    if (installed := find_installed(program, say)) is not None:
        return installed

    def make(folder: Path) -> None:
        archive = f"prometheus-{PROMETHEUS}.linux-{machine()}.tar.gz"
        say(f"downloading {program} {PROMETHEUS}")
        try:
            download_archived(
                f"{RELEASES}/v{PROMETHEUS}", archive, "sha256sums.txt", folder / program
            )
        except DownloadFailed as error:
            say(f"{error}; building from source instead, which takes several minutes")
            build(program, folder.with_name(f".build-{program}-{os.getpid()}"), folder)

    folder = f"{program}-{PROMETHEUS}-kubernetes"  # older builds are without that discovery
    return ensure_folder(cache_root() / "bin" / folder, make, say) / program


def build(program: Program, work: Path, destination: Path) -> None:
    """Build the program from its Go module into `destination`. Raises BuildFailed."""
    require_go(program, OR_INSTALL)
    work.mkdir()
    try:
        go = Go(work)
        major, rest = PROMETHEUS.split(".", 1)
        minor, patch = rest.split(".")
        module = f"{MODULE}@v0.{major}{int(minor):02}.{patch}"  # its Go modules stay below v1
        # Built inside the module, whose go.mod and go.sum pin what it consists of.
        source = Path(json.loads(go(work, "mod", "download", "-json", module))["Dir"])
        go(
            source, "build", "-ldflags", "-s -w", "-tags", TAGS,
            "-o", str(destination / program), f"./cmd/{program}",
        )  # fmt: skip
    finally:
        shutil.rmtree(work, ignore_errors=True)
