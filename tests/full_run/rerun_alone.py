"""Pytest plugin that runs the failed tests of a full run once more, each alone, after all others ended."""

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

# Failed tests of one run that are run again. More of them are a broken change, not flaky tests.
MAX_RERUN = 10


class RerunAlone:
    """Lets a run pass whose failed tests all pass alone, and names these flaky tests.

    They are in the last lines of the output and in the file `flaky_path`. A run with a collection error or a
    crashed worker stays failed.
    """

    def __init__(self, root: Path, flaky_path: Path) -> None:
        self._root = root
        self._flaky_path = flaky_path
        self._failed: dict[str, None] = {}
        self._is_broken = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._is_broken |= report.failed

    def pytest_testnodedown(self, error: object) -> None:
        self._is_broken |= error is not None

    # Around all others: the workers have taken down their clusters, and the summary is printed.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, Any, Any]:
        result = yield
        flaky = [nodeid for nodeid in self._rerun(session) if self._passes_alone(nodeid)]
        if flaky and len(flaky) == len(self._failed):
            session.exitstatus = pytest.ExitCode.OK
        self._report(flaky)
        return result

    def _rerun(self, session: pytest.Session) -> list[str]:
        """Node ids of the tests to run again."""
        is_rerun = (
            session.exitstatus == pytest.ExitCode.TESTS_FAILED
            and not self._is_broken
            and len(self._failed) <= MAX_RERUN
        )
        return list(self._failed) if is_rerun else []

    def _passes_alone(self, nodeid: str) -> bool:
        print(f"\nRunning {nodeid} alone", flush=True)
        command = [sys.executable, "-m", "pytest", "--quiet", nodeid]
        return subprocess.run(command, cwd=self._root, check=False).returncode == 0

    def _report(self, flaky: list[str]) -> None:
        self._flaky_path.parent.mkdir(parents=True, exist_ok=True)
        self._flaky_path.write_text("".join(f"{nodeid}\n" for nodeid in flaky))
        for nodeid in flaky:
            print(f"FLAKY {nodeid}: failed in the full run, passed alone", flush=True)
