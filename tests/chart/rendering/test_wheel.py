"""A wheel has what the chart is rendered from."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_a_wheel_renders_the_same_chart_as_the_checkout(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path]
    subprocess.run(run, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")

    folders = [tmp_path / "installed", f"{ROOT}/operator:{ROOT}/engine"]
    installed, checkout = (_chart_files(folder) for folder in folders)

    assert "files/dashboards/overview.json" in installed
    assert installed == checkout


def _chart_files(path: Path | str) -> str:
    code = "from penstock.chart.rendering.chart_files import chart_files; print(chart_files())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout
