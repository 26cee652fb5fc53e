"""Finds a tool that is written in Go, or builds it once in the cache."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from penstock.clients.machine.caches import cache_root
from penstock.local.cached_folder import ensure_folder
from penstock.local.gobuild import Go, require_go
from penstock.local.installed import find_installed


def ensure_tool(
    name: str, version: str, build: Callable[[Path, Path], None], say: Callable[[str], None]
) -> Path:
    """Return the path of a tool's binary.

    build: called with an empty folder for its work, and the folder for the binary. say: called before each
    slow step. Raises BuildFailed.
    """
    if (installed := find_installed(name, say)) is not None:
        return installed

    def make(folder: Path) -> None:
        require_go(name)
        say(f"building {name} {version}")
        work = folder.with_name(f".build-{name}-{os.getpid()}")
        work.mkdir()
        try:
            build(work, folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    return ensure_folder(cache_root() / "bin" / f"{name}-{version}", make, say) / name


def ensure_module_tool(
    name: str, version: str, package: str, ldflags: str, say: Callable[[str], None]
) -> Path:
    """Return the path of a tool that `go install` can build, as `ensure_tool`.

    package: to install, with its version. ldflags: of the linker.
    """

    def build(work: Path, folder: Path) -> None:
        Go(work, bin_folder=folder)(work, "install", "-ldflags", ldflags, package)

    return ensure_tool(name, version, build, say)
