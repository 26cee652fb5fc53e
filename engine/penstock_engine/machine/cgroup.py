"""Reads the limits and counters of this process's control groups (cgroup v1 and v2)."""

from collections.abc import Iterator
from pathlib import Path


def group_files(root: Path, controller: str, *, v2: str, v1: str) -> Iterator[Path]:
    """Paths of a controller's file in this process's cgroup and in all cgroups above it.

    v2, v1: the file's name by version. Not all of the files exist: from inside a container only the
    root of its hierarchy is visible. Yields nothing outside of Linux.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = root / "sys/fs/cgroup", v2
        elif controller in controllers.split(","):
            top, name = root / "sys/fs/cgroup" / controller, v1
        else:
            continue
        group = top / path.lstrip("/")
        yield from (parent / name for parent in (group, *group.parents))


def memory_limits_bytes(root: Path) -> list[int]:
    """The memory limits that are set on this process's cgroup and those above it, in bytes."""
    # Version 1 writes "no limit" as the largest page-aligned 64-bit number.
    texts = _texts(group_files(root, "memory", v2="memory.max", v1="memory.limit_in_bytes"))
    limits = [int(text) for text in texts if text.strip().isdecimal()]
    return [limit for limit in limits if limit < 1 << 60]


def cpu_quotas(root: Path) -> list[float]:
    """The CPU quotas that are set on this process's cgroup and those above it, in cores."""
    quotas = []
    for path in group_files(root, "cpu", v2="cpu.max", v1="cpu.cfs_quota_us"):
        words = " ".join(_texts(iter([path]))).split()
        if path.name != "cpu.max":
            words += " ".join(_texts(iter([path.with_name("cpu.cfs_period_us")]))).split()
        if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
            quotas.append(int(words[0]) / int(words[1]))
    return quotas


def throttled_s(root: Path) -> float:
    """Seconds that this process's cgroup and those above it were throttled by their quotas."""
    seconds = 0.0
    for text in _texts(group_files(root, "cpu", v2="cpu.stat", v1="cpu.stat")):
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            seconds += {"throttled_usec": 1e-6, "throttled_time": 1e-9}.get(name, 0.0) * int(value)
    return seconds


def _texts(paths: Iterator[Path]) -> Iterator[str]:
    for path in paths:
        try:
            yield path.read_text()
        except OSError:
            continue
