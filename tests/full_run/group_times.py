"""Pytest plugins that write how long each group of tests took, and how much processor time it used."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

SLOWEST = 100  # tests that the table names
OUTPUT = "processor_s"  # key of what a worker tells the controlling process


class ProcessorTimes:
    """Plugin of a worker: measures the processor time of its process and of all that it started.

    A cluster that outlives a group is counted to the groups that run meanwhile.
    """

    def __init__(self, config: Any, group: Callable[[str], str]) -> None:
        self._config = config
        self._group = group
        self._current: str | None = None
        self._since_s = processor_s()
        self._used_s: Counter[str] = Counter()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        group = self._group(nodeid)
        if group != self._current:
            self._count()
            self._current = group

    def pytest_sessionfinish(self) -> None:
        self._count()
        self._config.workeroutput[OUTPUT] = dict(self._used_s)

    def _count(self) -> None:
        now_s = processor_s()
        self._used_s[self._current or "start"] += now_s - self._since_s
        self._since_s = now_s


class GroupTimes:
    """Plugin of the controlling process: writes a table of the groups and of the slowest tests."""

    def __init__(self, path: Path, group: Callable[[str], str]) -> None:
        self._path = path
        self._group = group
        self._test_s: Counter[str] = Counter()
        self._processor_s: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._test_s[report.nodeid] += report.duration

    def pytest_testnodedown(self, node: Any) -> None:
        self._processor_s.update(getattr(node, "workeroutput", {}).get(OUTPUT, {}))

    def pytest_sessionfinish(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(self.table())

    def table(self) -> str:
        wall_s: Counter[str] = Counter()
        for nodeid, seconds in self._test_s.items():
            wall_s[self._group(nodeid)] += seconds
        names = sorted({*wall_s, *self._processor_s}, key=lambda name: -wall_s[name])
        lines = [f"{'group':<28}{'seconds':>10}{'processor seconds':>20}"]
        lines += [
            f"{name:<28}{wall_s[name]:>10.1f}{self._processor_s[name]:>20.1f}" for name in names
        ]
        lines += [f"{'all':<28}{wall_s.total():>10.1f}{self._processor_s.total():>20.1f}", ""]
        lines += [
            f"{seconds:>10.1f}  {nodeid}" for nodeid, seconds in self._test_s.most_common(SLOWEST)
        ]
        return "\n".join(lines) + "\n"


def processor_s() -> float:
    """Processor time of this process and its descendants, with those that have ended, in seconds."""
    this = psutil.Process()
    used_s = 0.0
    for process in [this, *this.children(recursive=True)]:
        with suppress(psutil.Error):
            used_s += sum(process.cpu_times()[:4])  # user, system, and both of ended children
    return used_s
