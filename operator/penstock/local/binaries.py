"""Finds, downloads or builds the binaries of Kubernetes and etcd, in that order."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from penstock.clients.machine.caches import cache_root
from penstock.local.download import DownloadFailed, download
from penstock.local.gobuild import build
from penstock.local.installed import find_installed
from penstock.local.locks import file_lock
from penstock.local.versions import BINARIES, ETCD, KUBERNETES


def ensure_binaries(
    say: Callable[[str], None], names: Sequence[str] = BINARIES
) -> Mapping[str, Path]:
    """Return the path of each binary, by name. Raises BuildFailed.

    Installed binaries (KUBEBUILDER_ASSETS, PATH, system folders) are preferred, then cached ones.
    Missing ones are downloaded, or built if that fails. say: called before each slow step.
    """
    cached = cache_root() / "bin" / f"kubernetes-{KUBERNETES}-etcd-{ETCD}"
    found = find(cached, say, names)
    if len(found) < len(names):
        cached.mkdir(parents=True, exist_ok=True)
        lock = cached.parent / f".{cached.name}.lock"
        with file_lock(lock, say, "downloads or builds the control plane"):
            found = find(cached, lambda _: None, names)  # another process may have filled it
            missing = [name for name in names if name not in found]
            if missing:
                _fill(cached, missing, say)
                found = find(cached, lambda _: None, names)
    return found


def _fill(cached: Path, missing: Sequence[str], say: Callable[[str], None]) -> None:
    """Download or build the binaries, then move them into the folder `cached`."""
    making = cached.with_name(f".{cached.name}-{os.getpid()}")
    making.mkdir()
    try:
        try:
            download(making, missing, say)
        except DownloadFailed as error:
            say(f"{error}; building from source instead, about five minutes")
            build(cached.with_name(f".build-{os.getpid()}"), making, missing, say)
        for name in missing:
            (making / name).rename(cached / name)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def find(
    cached: Path, say: Callable[[str], None], names: Sequence[str] = BINARIES
) -> dict[str, Path]:
    """Return the paths of the binaries that are installed or cached. Others are left out."""
    found = {name: find_installed(name, say) or cached / name for name in names}
    return {name: path for name, path in found.items() if path.is_file()}
