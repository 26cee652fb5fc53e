"""Finds a server of Redis, or unpacks it from Debian's packages without root."""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.clients.machine.caches import cache_root
from penstock.local.cached_folder import ensure_folder
from penstock.local.gobuild import BuildFailed

# With the libraries that slim images lack.
PACKAGES = (
    "redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libhiredis0.14", "liblua5.1-0", "lua-cjson",
    "lua-bitop",
)  # fmt: skip
NAMES = "valkey-server", "redis-server"


@dataclass(frozen=True, slots=True)
class RedisServer:
    """A program that serves Redis's protocol. libraries: folders of its shared libraries."""

    program: Path
    libraries: tuple[Path, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """The environment to start it in."""
        paths = os.pathsep.join(map(str, self.libraries))
        return dict(os.environ) | ({"LD_LIBRARY_PATH": paths} if paths else {})


def ensure_redis(say: Callable[[str], None]) -> RedisServer:
    """Return a server of Valkey or Redis. say: called before the download. Raises BuildFailed."""
    for name in NAMES:
        if (found := shutil.which(name)) is not None:
            return RedisServer(Path(found))

    def unpack(folder: Path) -> None:
        if shutil.which("apt-get") is None:
            raise BuildFailed("tests of quotas need valkey-server or redis-server: install one")
        say("downloading redis-server")
        _run(["apt-get", "download", *PACKAGES], folder)
        for package in sorted(folder.glob("*.deb")):
            _run(["dpkg-deb", "-x", package.name, "."], folder)
            package.unlink()

    folder = ensure_folder(cache_root() / "bin" / "redis-server", unpack, say)
    return RedisServer(folder / "usr/bin/redis-server", tuple(folder.glob("usr/lib/*-linux-gnu")))


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildFailed(f"{command[0]} failed: {done.stderr[-2000:]}")
