"""The build steps of the Containerfiles, run in a folder, and the programs that they install.

A container engine is not needed: the folder has a fresh environment as the base image's Python, and paths
of the image are moved into it.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.images.containerfile import read_stages

from penstock.chart.rendering.install import image_values, install_manifests
from penstock.chart.values.values import merged

ROOT = Path(__file__).parents[2]
# Bytecode of torch and the like takes 30 s of a processor. That of the control plane is compiled.
NOT_COMPILED = "--compile-bytecode requirements/engine.txt"
MONITORING = {"monitoring": {name: {"enabled": True} for name in ("dashboards", "prometheusRule")}}

pytestmark = pytest.mark.slow


class BuiltImage:
    """The files of an image in a folder, and the environment of its containers."""

    def __init__(self, containerfile: Path, folder: Path) -> None:
        self._folder = folder
        build, final = read_stages(containerfile)
        source = folder / build.texts("WORKDIR")[0].lstrip("/")
        base = folder / "base"
        subprocess.run([sys.executable, "-m", "venv", base], check=True)
        inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        environment = inherited | {"PATH": f"{base}/bin:/usr/bin:/bin"}
        for step in build.steps:
            if step.instruction == "COPY":
                *sources, target = step.words
                for each in sources:
                    copy_into_image(each, source / target)
            elif step.instruction == "RUN":
                command = step.text.replace("/opt/", f"{folder}/opt/")
                command = command.replace(NOT_COMPILED, NOT_COMPILED.split()[1])
                subprocess.run(command, shell=True, cwd=source, env=environment, check=True)
        self._environment = {
            name: value.replace("/opt/", f"{folder}/opt/")
            for name, value in final.pairs("ENV").items()
        }

    def run(self, *command: str) -> str:
        """Run a command as a container does, without the source tree. Returns what it printed."""
        done = subprocess.run(
            ["/usr/bin/env", *command],
            env=self._environment, cwd=self._folder / "opt", capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def copy_into_image(source: str, target: Path) -> None:
    """Copy a file into the folder `target`, or a folder as `target`, without what .dockerignore names."""
    path = ROOT / source
    if path.is_dir():
        shutil.copytree(path, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def build_image(file: str, folder: Path) -> Iterator[BuiltImage]:
    """Yield the built image, and delete its gigabytes of files after the tests."""
    yield BuiltImage(ROOT / file, folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltImage]:
    yield from build_image("operator/Containerfile", tmp_path_factory.mktemp("control-plane"))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltImage]:
    yield from build_image("engine/Containerfile", tmp_path_factory.mktemp("engine"))


def installed(image: BuiltImage) -> set[str]:
    """Names of the distributions in an image."""
    code = "from importlib.metadata import distributions; print(*{d.name for d in distributions()})"
    return set(image.run("python", "-c", code).lower().split())


def test_operator_and_gateway_run(control_plane: BuiltImage) -> None:
    for component in ("operator", "gateway"):
        assert "--log-level" in control_plane.run("penstock", component, "run", "--help")


def test_the_control_plane_imports_what_it_runs(control_plane: BuiltImage) -> None:
    control_plane.run(
        "python", "-c",
        "import penstock.controller.leader, penstock.gateway.app\n"
        "from kubernetes.aio.client import AuthenticationV1Api, CoordinationV1Api",
    )  # fmt: skip


def test_the_control_plane_has_neither_torch_nor_tools(control_plane: BuiltImage) -> None:
    names = installed(control_plane)
    assert {"penstock", "kopf", "uvicorn"} <= names
    assert not names & {"torch", "numpy", "transformers", "pip", "uv", "pytest"}


def test_the_wheel_has_what_an_installation_needs(control_plane: BuiltImage) -> None:
    """CRDs, dashboards and alerts, without a checkout."""
    printed = control_plane.run(
        "penstock", "manifests", "--image=a.example/penstock:v1", "--set",
        f"monitoring={json.dumps(MONITORING['monitoring'])}",
    )  # fmt: skip
    expected = install_manifests(merged(image_values("a.example/penstock:v1"), MONITORING))
    assert list(yaml.load_all(printed, yaml.CSafeLoader)) == expected
    kinds = [each["kind"] for each in expected]
    assert {"CustomResourceDefinition", "PrometheusRule"} <= set(kinds)
    assert kinds.count("ConfigMap") == len(list((ROOT / "dashboards").glob("*.json")))


def test_the_engine_runs(engine: BuiltImage) -> None:
    assert "--max-num-seqs" in engine.run("penstock-engine", "serve", "--help")
    assert "preflight" in engine.run("penstock-engine", "--help")
    engine.run("python", "-c", "import torch, triton, penstock_engine.server.serve")


def test_the_engine_has_neither_kopf_nor_tools(engine: BuiltImage) -> None:
    assert not installed(engine) & {"kopf", "kubernetes", "pip", "uv", "pytest"}
