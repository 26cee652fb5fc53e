"""Helm renders the same objects as `penstock manifests`, and refuses wrong values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.chart.conftest import CHART, Helm
from tests.chart.value_sets import IMAGE, VALUE_SETS

from penstock.chart.rendering.chart_files import chart_files
from penstock.chart.rendering.install import install_manifests
from penstock.chart.values.values import merged

pytestmark = pytest.mark.slow


def by_name(objects: list[Any]) -> dict[tuple[str, str, str], Any]:
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in objects
    }


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_both_renderers_agree(rendered: Callable[..., list[Any]], values: dict[str, Any]) -> None:
    """Helm makes the namespace itself, with --create-namespace."""
    values = merged(IMAGE, values)
    namespace, *expected = install_manifests(values, "here")
    assert namespace["kind"] == "Namespace"
    assert by_name(rendered(values)) == by_name(expected)


@pytest.mark.parametrize(
    ("values", "messages"),
    [
        (
            {"operator": {"replica": 3}, "gateway": {"replicas": "two"}},
            ["at '/operator': additional properties 'replica' not allowed",
             "at '/gateway/replicas': got string, want integer"],
        ),
        (
            {"gateway": {"service": {"type": "Ingress"}}},
            ["at '/gateway/service/type': value must be one of 'ClusterIP', 'NodePort', 'LoadBalancer'"],
        ),
        (
            {"gateway": {"podLabels": {"app.kubernetes.io/name": "x"}}},
            ["at '/gateway/podLabels/app.kubernetes.io~1name': false schema"],
        ),
        (
            {"networkPolicy": {"apiServerPorts": [443, 70000]}},
            ["at '/networkPolicy/apiServerPorts/1': maximum: got 70,000, want 65,535"],
        ),
        (
            {"tracing": {"endpoint": "collector:4318", "samplerArg": "0.1"}},
            ["at '/tracing/endpoint': 'collector:4318' does not match pattern",
             "at '/tracing/samplerArg': maxLength: got 3, want 0"],
        ),
        (
            {"gateway": {"extraEnv": [{"name": "POD_IP", "value": "::1"}]}},
            ["at '/gateway/extraEnv/0/name': 'not' failed"],
        ),
        (
            {"gateway": {"autoscaling": {"enabled": True, "minReplicas": 9}}},
            ["gateway.autoscaling: minReplicas must not be greater than maxReplicas; raise maxReplicas"],
        ),
        (
            {"gateway": {"keysNamespace": "default"}},
            ["gateway.keysNamespace must not be the release's namespace, as gateways may list all Secrets in "
             "it; choose one that has nothing else"],
        ),
        ({"gateway": {"port": 8082}}, ["gateway: managementPort must not be port; choose another one"]),
        (
            {"gateway": {"hostNetwork": True}},
            ["networkPolicy.enginesFrom must name the addresses of the nodes, which gateway.hostNetwork lets "
             "connect to engines; or set networkPolicy.engines to false"],
        ),
        (
            {"monitoring": {"podMonitor": {"enabled": True}}},
            ["networkPolicy.enginesFrom must name Prometheus, which monitoring.podMonitor lets connect to "
             "engines; or set networkPolicy.engines to false"],
        ),
        (
            {"nodeCache": {"enabled": True}},
            ["nodeCache.allowedSources must name what nodes may fetch, such as hf://Qwen/"],
        ),
        ({"image": {"repository": ""}}, ["image.repository must be set, such as registry.example/penstock"]),
    ],
)  # fmt: skip
def test_refusals_name_the_value(helm: Helm, values: dict[str, Any], messages: list[str]) -> None:
    done = helm("template", "penstock", CHART, values=merged(IMAGE, values))
    assert done.returncode != 0
    for message in messages:
        assert message in done.stderr


@pytest.mark.parametrize("name", ["defaults", "one_namespace", "autoscaled"])
def test_strict_lint(helm: Helm, name: str) -> None:
    done = helm("lint", "--strict", CHART, values=merged(IMAGE, VALUE_SETS[name]))
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_and_dashboards_become_objects(helm: Helm, tmp_path: Path) -> None:
    """A file in the chart's folder is enough."""
    files = chart_files() | {
        "files/dashboards/one.json": '{"title": "{{ legend }}"}\n',
        "files/rules/two.yaml": "groups: [{name: g, rules: []}]\n",
    }
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    values = merged(IMAGE, VALUE_SETS["monitored"])
    done = helm(
        "template", "penstock", tmp_path, "--show-only=templates/monitoring.yaml", values=values
    )
    assert done.returncode == 0, done.stderr
    assert 'one.json: "{\\"title\\": \\"{{ legend }}\\"}\\n"' in done.stdout.replace(
        '"one.json"', "one.json"
    )
    assert 'spec: {"groups":[{"name":"g","rules":[]}]}' in done.stdout
