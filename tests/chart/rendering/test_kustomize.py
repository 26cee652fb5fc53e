"""The kustomize base is the chart with its defaults; an overlay replaces the image everywhere."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.chart.rendering.install import image_values, install_manifests
from penstock.chart.version import VERSION
from penstock.local.binaries import ensure_binaries

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.cluster  # for kubectl


def built(folder: str) -> list[Any]:
    kubectl = ensure_binaries(print)["kubectl"]
    done = subprocess.run(
        [kubectl, "kustomize", ROOT / folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return ordered(yaml.load_all(done.stdout, yaml.CSafeLoader))


def ordered(objects: Any) -> list[Any]:
    return sorted(objects, key=lambda each: (each["kind"], each["metadata"]["name"]))


@pytest.mark.parametrize(
    ("folder", "image"),
    [
        ("charts/kustomize", f"penstock:{VERSION}"),
        ("examples/kustomize", "registry.example/penstock:0.1.0"),
    ],
)
def test_the_objects_are_those_of_the_chart(folder: str, image: str) -> None:
    assert built(folder) == ordered(install_manifests(image_values(image)))
