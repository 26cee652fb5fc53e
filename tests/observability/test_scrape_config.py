"""The example of a scrape configuration gives series the labels that the chart's PodMonitors give them."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.support.specs.service_spec import SMALL
from tests.support.tools import prometheus

from penstock.chart.names import GATEWAY, OPERATOR
from penstock.chart.rendering.install import install_manifests
from penstock.core.manifests.engine import deployment, own_pods
from penstock.core.observed.label_selector import selects

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "prometheus.yaml"
VALUES = {
    "image": {"repository": "penstock"},
    "monitoring": {"podMonitor": {"enabled": True}},
    "networkPolicy": {"enginesFrom": [{"namespaceSelector": {}}]},
}


@pytest.fixture(scope="module")
def jobs():
    config = yaml.safe_load(EXAMPLE.read_text())
    return {job["job_name"]: job["relabel_configs"] for job in config["scrape_configs"]}


@pytest.fixture(scope="module")
def monitors():
    manifests = install_manifests(VALUES)
    found = [each for each in manifests if each["kind"] == "PodMonitor"]
    return {each["metadata"]["name"]: each["spec"] for each in found}


def test_promtool_accepts_the_example(tmp_path):
    """promtool also finds the rules, which lie beside the example as its first lines say."""
    (tmp_path / EXAMPLE.name).write_text(EXAMPLE.read_text())
    rules = ROOT / "charts" / "penstock" / "files" / "rules" / "alerts.yaml"
    (tmp_path / "rules.yaml").write_text(rules.read_text())
    promtool = prometheus.ensure("promtool", print)
    done = subprocess.run(
        [promtool, "check", "config", tmp_path / EXAMPLE.name],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_engines_get_the_labels_of_the_pod_monitor(jobs, monitors):
    (endpoint,) = monitors["penstock-engines"]["podMetricsEndpoints"]
    wanted = [
        {
            "source_labels": rule["sourceLabels"],
            **({"separator": rule["separator"]} if "separator" in rule else {}),
            "target_label": rule["targetLabel"],
        }
        for rule in endpoint["relabelings"]
    ]
    # A PodMonitor adds the labels namespace and pod itself.
    rules = [each for each in jobs["penstock-engines"] if "target_label" in each]
    assert [each for each in rules if each["target_label"] not in ("namespace", "pod")] == wanted
    labels = monitors["penstock-engines"]["selector"]["matchLabels"]
    assert kept(jobs["penstock-engines"]) == {**meta(labels), PORT: endpoint["port"]}


@pytest.mark.parametrize(
    "runtime",
    [{}, {"runtime.type": "VLLM"}, {"runtime.type": "Custom", "runtime.custom.image": "x"}],
)
def test_engines_of_every_runtime_are_scraped(monitors, runtime):
    spec = replace(SMALL, settings=runtime)
    pod = deployment(spec, "r", own_pods(spec, "r", "image"))["spec"]["template"]
    (endpoint,) = monitors["penstock-engines"]["podMetricsEndpoints"]
    assert selects(monitors["penstock-engines"]["selector"], pod["metadata"]["labels"])
    assert endpoint["port"] in [port["name"] for port in pod["spec"]["containers"][0]["ports"]]
    assert endpoint.get("path", "/metrics") == "/metrics"


def test_the_components_are_those_of_the_pod_monitors(jobs, monitors):
    for name in (OPERATOR, GATEWAY):
        (endpoint,) = monitors[name]["podMetricsEndpoints"]
        wanted = {**meta(monitors[name]["selector"]["matchLabels"]), PORT: endpoint["port"]}
        keep = jobs["penstock"][0]
        assert keep["source_labels"] == list(wanted)
        assert re.fullmatch(keep["regex"], ";".join(wanted.values()))


PORT = "__meta_kubernetes_pod_container_port_name"


def meta(labels):
    """Labels of pods by the names that Prometheus has for them."""
    return {
        "__meta_kubernetes_pod_label_" + re.sub(r"\W", "_", name): value
        for name, value in labels.items()
    }


def kept(rules):
    return dict(zip(rules[0]["source_labels"], rules[0]["regex"].split(";"), strict=True))
