"""Finds azurite, a server of Azure's blobs, or installs it from its npm package."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from penstock.clients.machine.caches import cache_root
from penstock.local.cached_folder import ensure_folder
from penstock.local.gobuild import BuildFailed

AZURITE = "3.37.0"


def ensure_azurite(say: Callable[[str], None]) -> Path:
    """Return the path of the `azurite-blob` program. say: called before the download. Raises BuildFailed."""

    def install(folder: Path) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise BuildFailed(f"azurite {AZURITE} is installed by npm: install Node.js 20 or newer")
        say(f"installing azurite {AZURITE}")
        flags = ("--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
        done = subprocess.run(
            [npm, "install", "--prefix", folder, *flags, f"azurite@{AZURITE}"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise BuildFailed(f"npm cannot install azurite {AZURITE}: {done.stderr[-2000:]}")

    folder = ensure_folder(cache_root() / "bin" / f"azurite-{AZURITE}", install, say)
    return folder / "node_modules/.bin/azurite-blob"
