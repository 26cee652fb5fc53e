"""Prints facts about the container that it runs in, as JSON. Its source is the input of an image's Python."""

import json
import os
import shutil
import ssl
import stat
import zoneinfo
from datetime import UTC, datetime
from importlib.metadata import distributions
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path

PROGRAMS = ("apt-get", "cc", "curl", "gcc", "g++", "git", "ld", "make", "nvcc", "pip", "uv", "wget")
FOLDERS = ("/", "/etc", "/opt/penstock", "/tmp", "/usr/bin", "/var")
ZONE = "Europe/Berlin"


def can_write(folder: str) -> bool:
    path = Path(folder, f".written-{os.getpid()}")
    try:
        path.touch()
    except OSError:
        return False
    path.unlink()
    return True


def zone_is_known(folder: Path) -> bool:
    """Whether a folder of the system has the rules of a time zone with summer time."""
    zoneinfo.reset_tzpath(to=[str(folder)])
    try:
        zone = zoneinfo.ZoneInfo.no_cache(ZONE)
    except zoneinfo.ZoneInfoNotFoundError:
        return False
    july = datetime(2026, 7, 1, tzinfo=UTC).astimezone(zone)
    return july.hour == 2


def setuid_files() -> list[str]:
    """Programs that run with their owner's or group's rights."""
    found = []
    for folder in ("/usr", "/opt"):
        for path in Path(folder).rglob("*"):
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                found.append(str(path))
    return sorted(found)


def stale_bytecode() -> list[str]:
    """Modules of the environment whose bytecode is missing or depends on times of files.

    Modules for other versions of Python have none, as this one cannot compile them.
    """
    return [
        str(path)
        for path in Path("/opt/penstock/lib").rglob("*.py")
        if not has_bytecode(path) and is_valid(path)
    ]


def has_bytecode(path: Path) -> bool:
    compiled = Path(cache_from_source(str(path)))
    unchecked = MAGIC_NUMBER + b"\1\0\0\0"
    return compiled.is_file() and compiled.read_bytes()[: len(unchecked)] == unchecked


def is_valid(path: Path) -> bool:
    try:
        compile(path.read_bytes(), str(path), "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def main() -> None:
    certificates = ssl.create_default_context().cert_store_stats()["x509_ca"]
    print(
        json.dumps(
            {
                "uid": os.getuid(),
                "gid": os.getgid(),
                "writable": [folder for folder in FOLDERS if can_write(folder)],
                "distributions": sorted({each.name.lower() for each in distributions()}),
                "programs": [name for name in PROGRAMS if shutil.which(name)],
                "certificates": certificates,
                "system_has_time_zones": zone_is_known(Path("/usr/share/zoneinfo")),
                "setuid_files": setuid_files(),
                "stale_bytecode": stale_bytecode(),
            }
        )
    )


if __name__ == "__main__":
    main()
