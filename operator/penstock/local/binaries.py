"""The five binaries of a control plane: found, downloaded or built, in that order."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from filelock import FileLock

from penstock.clients.caches import cache_root
from penstock.local.download import DownloadFailed, download
from penstock.local.gobuild import build
from penstock.local.versions import BINARIES, ETCD, KUBERNETES


def ensure_binaries(say: Callable[[str], None]) -> Mapping[str, Path]:
    """The path of each binary. `say` is told each slow step.

    A complete set in KUBEBUILDER_ASSETS wins, then PATH, then the cache. What is missing is
    downloaded, or built where the release site cannot be reached. Raises BuildFailed.
    """
    cached = cache_root() / "bin" / f"kubernetes-{KUBERNETES}-etcd-{ETCD}"
    found = find(cached)
    if len(found) == len(BINARIES):
        return found

    def make(making: Path) -> None:
        try:
            download(making, say)
        except DownloadFailed as error:
            say(f"{error}; building from source instead, about five minutes")
            build(cached.with_name(f".build-{os.getpid()}"), making, say)

    return find(kept(cached, make))


def kept(cached: Path, make: Callable[[Path], None]) -> Path:
    """The folder `cached`, filled by `make` where it is not there: by one process, and whole."""
    cached.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(cached.parent / f".{cached.name}.lock"):
        if not cached.is_dir():
            making = cached.with_name(f".{cached.name}-{os.getpid()}")
            making.mkdir()
            try:
                make(making)
                making.rename(cached)
            finally:
                shutil.rmtree(making, ignore_errors=True)
    return cached


def find(cached: Path) -> dict[str, Path]:
    """What is already on this machine. kubectl may come from PATH while the rest is cached."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    places = [assets, os.environ.get("PATH"), str(cached)]
    found: dict[str, Path] = {}
    for name in BINARIES:
        for place in places:
            if place and (path := shutil.which(name, path=place)):
                found[name] = Path(path)
                break
    return found
