"""Finds binaries that are installed on this machine and new enough for Penstock."""

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.local.versions import OLDEST

# Packages install binaries here; a user's PATH may not include these folders.
SYSTEM_FOLDERS = ("/usr/local/bin", "/usr/bin")
VERSION_TIMEOUT_S = 10.0
_VERSION = re.compile(r"(?:(?:version|Version:|Kubernetes) v?|^v)(\d+)\.(\d+)\S*")
# Arguments with which a binary prints its version, where that is not --version.
_VERSION_ARGUMENTS = {
    "kubectl": ["version", "--client"], "helm": ["version", "--short"], "kubeconform": ["-v"],
}  # fmt: skip


def find_installed(name: str, say: Callable[[str], None]) -> Path | None:
    """Return the first usable binary of this name in KUBEBUILDER_ASSETS, PATH and SYSTEM_FOLDERS.

    Binaries that are older than OLDEST or do not print a version are skipped, with a line to `say`.
    """
    folders = [os.environ.get("KUBEBUILDER_ASSETS"), os.environ.get("PATH"), *SYSTEM_FOLDERS]
    found = [shutil.which(name, path=folder) for folder in folders if folder]
    for path in dict.fromkeys(Path(each) for each in found if each):
        if (objection := _objection(path, OLDEST[name])) is None:
            return path
        say(f"{path} {objection}: passed over")
    return None


def _objection(path: Path, oldest: Sequence[int]) -> str | None:
    """Why the binary cannot be used; None if it can."""
    version = installed_version(path)
    if version is None:
        return "does not tell its version"
    if version < tuple(oldest):
        return f"has version {_text(version)}, older than {_text(oldest)}"
    return None


def _text(version: Sequence[int]) -> str:
    return ".".join(str(number) for number in version)


@functools.cache
def installed_version(path: Path) -> tuple[int, int] | None:
    """Major and minor version as the binary prints them; None if it prints none."""
    arguments = _VERSION_ARGUMENTS.get(path.name, ["--version"])
    try:
        done = subprocess.run(
            [path, *arguments],
            capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stdout + done.stderr)
    return (int(match[1]), int(match[2])) if match else None
