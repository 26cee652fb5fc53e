"""The lists of metrics follow naming conventions, and code sets each metric."""

import ast
from pathlib import Path

import pytest

from penstock.clients.metrics.metric_set import MetricSet
from penstock.observability.metrics import (
    gateway,
    gateway_external,
    gateway_tenants,
    operator,
    operator_adapters,
)
from penstock.observability.metrics.fetches import ADAPTER_FETCHES, MODEL_FETCHES
from penstock.observability.metrics.operator_labels import LOOP

PACKAGE = Path(gateway.__file__).parents[2]
# Suffixes that the names of a type must have.
SUFFIXES = {
    "counter": ("_total",),
    "histogram": ("_seconds",),
}
# Code that sets the metrics of each list.
SOURCES = {
    gateway: [
        "gateway/telemetry/adapter_metrics.py",
        "gateway/telemetry/metrics.py",
        "gateway/telemetry/route_metrics.py",
        "gateway/telemetry/tenant_metrics.py",
    ],
    operator: [
        "controller/adapters/metrics.py",
        "controller/process/metrics.py",
        "controller/services/metrics.py",
        "observability/service_samples.py",
    ],
}
MODULES = {
    gateway: [gateway, gateway_external, gateway_tenants],
    operator: [operator, operator_adapters],
}
# Names by which that code imports the modules of a list.
LIST_NAMES = ("specs", "gateway", "gateway_external", "gateway_tenants")
# Methods that report a loop's errors. Their first argument is the loop's name.
ERROR_METHODS = ("isolate_errors", "isolate_pass", "report")
LISTS = pytest.mark.parametrize("listed", list(SOURCES), ids=["gateway", "operator"])


def constants(listed):
    """The specs by name, as the modules of a list define them."""
    return {
        name: each
        for module in MODULES[listed]
        for name, each in vars(module).items()
        if type(each).__name__ == "MetricSpec"
    }


@LISTS
def test_names_are_unique_and_follow_the_conventions(listed):
    names = [spec.name for spec in listed.METRICS]
    assert len(set(names)) == len(names)
    prefix = f"penstock_{listed.__name__.rpartition('.')[2]}_"
    for spec in listed.METRICS:
        assert spec.name.startswith(prefix)
        assert spec.name.endswith(SUFFIXES.get(spec.kind, ""))
        assert spec.name.endswith("_total") == (spec.kind == "counter")
        assert spec.help.endswith(".")
        assert all(label.bound for label in spec.labels)


@LISTS
def test_each_constant_is_in_the_list(listed):
    defined = [*constants(listed).values()]
    if listed is operator:
        defined += [*MODEL_FETCHES, *ADAPTER_FETCHES]
    assert sorted(map(str, defined)) == sorted(map(str, listed.METRICS))


@LISTS
def test_each_metric_is_set_somewhere(listed):
    """The code names each spec, and no other."""
    used = set()
    for source in SOURCES[listed]:
        for node in ast.walk(ast.parse((PACKAGE / source).read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used.add(node.attr) if node.value.id in LIST_NAMES else None
    assert constants(listed).keys() <= used


@LISTS
def test_exposition_has_exactly_the_names_of_the_list(listed):
    text = MetricSet(listed.METRICS).render()[0].decode()
    exposed = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert exposed == {spec.name for spec in listed.METRICS}


def test_every_loop_of_the_operator_is_in_the_list():
    """Loops are named where their errors are reported."""
    found = set()
    for path in (PACKAGE / "controller").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ERROR_METHODS:
                found |= {each.value for each in node.args[:1] if isinstance(each, ast.Constant)}
    assert found == set(LOOP.values)
