"""Finds tools that are written in Go, or builds them once in the cache."""

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
    return ensure_built(f"{name}-{version}", f"{name} {version}", build, say) / name


def ensure_built(
    folder: str, what: str, build: Callable[[Path, Path], None], say: Callable[[str], None]
) -> Path:
    """Return the path of a folder of the cache with binaries, which `build` makes if it is missing.

    folder: its name. what: names the binaries to users. The others are those of `ensure_tool`.
    """

    def make(made: Path) -> None:
        require_go(what)
        say(f"building {what}")
        work = made.with_name(f".build-{folder}-{os.getpid()}")
        work.mkdir()
        try:
            build(work, made)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    return ensure_folder(cache_root() / "bin" / folder, make, say)


def ensure_module_tool(
    name: str, version: str, package: str, ldflags: str, say: Callable[[str], None]
) -> Path:
    """Return the path of a tool that `go install` can build, as `ensure_tool`.

    package: to install, with its version. ldflags: of the linker.
    """

    def build(work: Path, folder: Path) -> None:
        Go(work, bin_folder=folder)(work, "install", "-ldflags", ldflags, package)

    return ensure_tool(name, version, build, say)
