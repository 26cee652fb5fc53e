"""The objects fit the schemas of Kubernetes 1.31 to 1.36, with no unknown field."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.chart.rendering.kubernetes_schemas import LOCATION, VERSIONS, schemas_folder
from tests.chart.value_sets import IMAGE, VALUE_SETS
from tests.support.tools.chart_tools import ensure_kubeconform

from penstock.chart.rendering.install import install_manifests
from penstock.chart.values.values import merged

# No registry has schemas of the Prometheus operator's kinds.
SKIPPED = "PodMonitor,PrometheusRule"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def schemas() -> Path:
    return schemas_folder()


@pytest.fixture(scope="session")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the objects of each set of values."""
    folder = tmp_path_factory.mktemp("manifests")
    for name, values in VALUE_SETS.items():
        objects = install_manifests(merged(IMAGE, values))
        (folder / f"{name}.yaml").write_text(yaml.dump_all(objects, Dumper=yaml.CSafeDumper))
    return folder


def conform(schemas: Path, version: str, path: Path) -> list[dict[str, str]]:
    """Check the manifests of a file or folder. Returns those that are invalid or have no schema."""
    done = subprocess.run(
        [ensure_kubeconform(print), "-strict", "-output=json", f"-kubernetes-version={version}",
         f"-skip={SKIPPED}", f"-schema-location={schemas}/{LOCATION}", path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found: list[dict[str, str]] = json.loads(done.stdout)["resources"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_objects_fit_the_schemas(schemas: Path, manifests: Path, version: str) -> None:
    assert conform(schemas, version, manifests) == []


def test_an_unknown_field_is_found(schemas: Path, tmp_path: Path) -> None:
    wrong = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"port": 1}}
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(wrong))
    (found,) = conform(schemas, VERSIONS[0], tmp_path)
    assert "additional properties 'port' not allowed" in found["msg"]
