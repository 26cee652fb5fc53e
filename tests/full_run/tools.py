"""Pytest plugin that builds the tools of all tests first, beside those that need none, with one Go cache."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.support.tools import prometheus
from tests.support.tools.actionlint import ensure_actionlint
from tests.support.tools.azurite import ensure_azurite
from tests.support.tools.chart_tools import ensure_helm, ensure_kubeconform
from tests.support.tools.image_registry import ensure_registry
from tests.support.tools.object_store_server import ensure_fake_gcs, ensure_versitygw
from tests.support.tools.otel_collector import ensure_otel_collector
from tests.support.tools.redis import ensure_redis

from penstock.local.binaries import ensure_binaries
from penstock.local.gobuild import shared_cache

ROOT = Path(__file__).parents[2]


class Tools:
    """Starts the builds with the run. Tests wait for a tool by its lock, and build one that failed again."""

    def pytest_sessionstart(self) -> None:
        self._caches = ExitStack()
        self._caches.enter_context(shared_cache())  # also of the workers
        self._building = subprocess.Popen(
            [sys.executable, "-m", "tests.full_run.tools"], cwd=ROOT, stdout=subprocess.DEVNULL
        )

    def pytest_sessionfinish(self) -> None:
        self._building.terminate()
        self._building.wait()
        self._caches.close()


def build() -> None:
    """Find, download or build the tools, in the order in which tests of a full run need them."""
    ensure_binaries(print)
    ensure_helm(print)
    prometheus.ensure("promtool", print)
    prometheus.ensure("prometheus", print)
    ensure_otel_collector(print)
    ensure_kubeconform(print)
    ensure_actionlint(print)
    ensure_registry(print)
    ensure_versitygw(print)
    ensure_fake_gcs(print)
    ensure_azurite(print)
    ensure_redis(print)


if __name__ == "__main__":
    build()
