"""Helm, and what it renders."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.tools.chart_tools import ensure_helm

from penstock.chart.rendering.chart_files import OLDEST_KUBERNETES

CHART = Path(__file__).parents[2] / "charts" / "penstock"

Helm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Runs helm with arguments, and values on standard input."""
    binary = ensure_helm(print)

    def run(*arguments: str | Path, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [binary, *arguments, f"--kube-version={OLDEST_KUBERNETES}", "--values", "-"],
            input=json.dumps(values), capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


@pytest.fixture(scope="session")
def rendered(helm: Helm) -> Callable[[dict[str, Any]], list[Any]]:
    """Returns the objects of the chart with some values, in the namespace `here`."""

    def render(values: dict[str, Any]) -> list[Any]:
        done = helm("template", "penstock", CHART, "--namespace", "here", values=values)
        assert done.returncode == 0, done.stderr
        return [each for each in yaml.load_all(done.stdout, yaml.CSafeLoader) if each]

    return render
